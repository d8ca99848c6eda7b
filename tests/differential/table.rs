//! The requests.

use serde::Deserialize;
use serde_json::Value;

/// The requests of one file, sent one after the other in a namespace of their own.
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) requests: Vec<Request>,
}

/// One request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// `GET configmaps/a?x=y`: a path within the area's namespace, or a whole one from the root.
    #[serde(rename = "do")]
    pub(crate) what: String,
    /// The body, sent as JSON.
    pub(crate) body: Option<Value>,
    /// The body as it is sent.
    pub(crate) raw: Option<String>,
    /// What the body is: `json`, `merge`, `strategic`, `apply`, `yaml` or a media type.
    #[serde(rename = "as")]
    pub(crate) media: Option<String>,
    /// What is wanted: `table`, `metadata`, or a media type.
    pub(crate) accept: Option<String>,
    /// Sends it again until this is the code.
    pub(crate) until: Option<u16>,
    /// Reads this many events of a watch.
    pub(crate) events: Option<usize>,
    /// Remembers the version of the answer as `$mark`.
    #[serde(default)]
    pub(crate) mark: bool,
    /// What of the body differs by nature, as JSON pointers.
    #[serde(default)]
    pub(crate) but: Vec<String>,
    /// Why the answers are not the same.
    pub(crate) differs: Option<String>,
}

/// All areas, in the order of their names.
pub(crate) fn areas() -> Vec<Area> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/differential/requests");
    let mut areas: Vec<Area> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let requests = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            Area { name, requests }
        })
        .collect();
    areas.sort_by(|left, right| left.name.cmp(&right.name));
    areas
}
