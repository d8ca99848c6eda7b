//! What the client wants to read: JSON or YAML, whole objects, tables, or metadata only.

use http::HeaderMap;

use crate::status::Failure;

/// How an answer is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// The bytes.
    pub(crate) encoding: Encoding,
    /// What of the object.
    pub(crate) view: View,
}

/// JSON or YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// What of an object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it.
    Whole,
    /// Rows for people, in this version of `meta.k8s.io`.
    Table(MetaVersion),
    /// Its metadata only.
    Metadata(MetaVersion),
}

/// Versions of `meta.k8s.io` that clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`, from clients of old
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion` to write.
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// One alternative of an `Accept` header.
#[derive(Debug, Default)]
pub(crate) struct Clause<'a> {
    /// For example `application/json`.
    pub(crate) media: &'a str,
    /// `as`
    pub(crate) kind: &'a str,
    /// `g`
    pub(crate) group: &'a str,
    /// `v`
    pub(crate) version: &'a str,
    quality: f32,
}

/// The alternatives of all `Accept` headers, best first; one wildcard when there are none.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut found: Vec<Clause<'_>> = headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter(|clause| !clause.trim().is_empty())
        .map(clause)
        .collect();
    if found.is_empty() {
        found.push(Clause { media: "*/*", quality: 1.0, ..Clause::default() });
    }
    found.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    found
}

fn clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut clause = Clause { media: parts.next().unwrap_or_default(), quality: 1.0, ..Clause::default() };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "as" => clause.kind = value.trim(),
            "g" => clause.group = value.trim(),
            "v" => clause.version = value.trim(),
            "q" => clause.quality = value.trim().parse().unwrap_or(1.0),
            _ => {}
        }
    }
    clause
}

/// Chooses the first alternative that we can write.
pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Format, Failure> {
    clauses(headers).iter().find_map(accepted).ok_or_else(Failure::not_acceptable)
}

fn accepted(clause: &Clause<'_>) -> Option<Format> {
    let encoding = match clause.media {
        "*/*" | "application/json" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let view = match clause.kind {
        "" => View::Whole,
        kind => {
            let version = match (clause.group, clause.version) {
                ("meta.k8s.io", "v1") => MetaVersion::V1,
                ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
                _ => return None,
            };
            match kind {
                "Table" => View::Table(version),
                "PartialObjectMetadata" | "PartialObjectMetadataList" => View::Metadata(version),
                _ => return None,
            }
        }
    };
    Some(Format { encoding, view })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Format = Format { encoding: Encoding::Json, view: View::Whole };

    fn format(accept: &str) -> Result<Format, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().expect("a header value"));
        negotiate(&headers).map_err(|failure| failure.code)
    }

    #[test]
    fn the_first_alternative_that_fits_is_taken() {
        let table = Format { encoding: Encoding::Json, view: View::Table(MetaVersion::V1) };
        assert_eq!(format("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), Ok(table));
        assert_eq!(format("application/vnd.kubernetes.protobuf,application/json"), Ok(PLAIN));
        assert_eq!(format("text/html, */*"), Ok(PLAIN));
        assert_eq!(format("application/yaml").map(|format| format.encoding), Ok(Encoding::Yaml));
        assert_eq!(format("application/yaml;q=0.5,application/json"), Ok(PLAIN));
        assert_eq!(format("text/html"), Err(406));
        assert_eq!(format("application/*"), Err(406));
        assert_eq!(negotiate(&HeaderMap::new()), Ok(PLAIN));
    }
}
