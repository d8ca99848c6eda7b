//! From a path to what it names.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`
    Root,
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz`, and a single check of theirs.
    Health {
        /// `healthz`, `livez` or `readyz`.
        endpoint: String,
        /// One check only.
        check: Option<String>,
    },
    /// `/metrics`
    Metrics,
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/<path>`
    OpenApiV3(String),
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1` and `/apis/<group>/<version>`
    GroupVersion {
        /// API group; empty for core.
        group: String,
        /// API version.
        version: String,
    },
    /// Objects.
    Resource(Target),
    /// `/.well-known/openid-configuration` and `/openid/v1/jwks`
    OpenId(&'static str),
    /// `/steersman/v1/backup`
    Backup,
    /// `/steersman/v1/restore`
    Restore,
    /// Nothing we know.
    Unknown,
}

/// Which objects a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// API group; empty for core.
    pub(crate) group: String,
    /// API version.
    pub(crate) version: String,
    /// The namespace, when the path has one.
    pub(crate) namespace: Option<String>,
    /// Plural name of the resource.
    pub(crate) plural: String,
    /// One object.
    pub(crate) name: Option<String>,
    /// One side of one object.
    pub(crate) subresource: Option<String>,
    /// The deprecated `/watch/` prefix was there.
    pub(crate) watch: bool,
}

impl Route {
    /// Reads a path. A segment that does not decode names nothing.
    pub(crate) fn parse(path: &str) -> Self {
        let trimmed = path.strip_prefix('/').unwrap_or(path);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        if trimmed.is_empty() {
            return Self::Root;
        }
        let Some(segments) = trimmed.split('/').map(decode_segment).collect::<Option<Vec<String>>>() else {
            return Self::Unknown;
        };
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["version"] => Self::Version,
            ["metrics"] => Self::Metrics,
            [endpoint @ ("healthz" | "livez" | "readyz")] => {
                Self::Health { endpoint: (*endpoint).into(), check: None }
            }
            [endpoint @ ("healthz" | "livez" | "readyz"), rest @ ..] => {
                Self::Health { endpoint: (*endpoint).into(), check: Some(rest.join("/")) }
            }
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiIndex,
            ["openapi", "v3", rest @ ..] => Self::OpenApiV3(rest.join("/")),
            [".well-known", "openid-configuration"] => Self::OpenId("configuration"),
            ["openid", "v1", "jwks"] => Self::OpenId("jwks"),
            ["steersman", "v1", "backup"] => Self::Backup,
            ["steersman", "v1", "restore"] => Self::Restore,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion { group: String::new(), version: (*version).into() },
            ["apis", group, version] => {
                Self::GroupVersion { group: (*group).into(), version: (*version).into() }
            }
            ["api", version, rest @ ..] => Target::parse("", version, rest),
            ["apis", group, version, rest @ ..] => Target::parse(group, version, rest),
            _ => Self::Unknown,
        }
    }
}

impl Target {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Route {
        let mut target = Self { group: group.into(), version: version.into(), ..Self::default() };
        let mut rest = rest;
        if let ["watch", after @ ..] = rest
            && !after.is_empty()
        {
            target.watch = true;
            rest = after;
        }
        let owned = |text: &&str| Some((*text).to_owned());
        match rest {
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
                target.plural = "namespaces".into();
                target.name = owned(name);
                target.subresource = owned(sub);
            }
            ["namespaces", namespace, plural, more @ ..] => {
                target.namespace = owned(namespace);
                target.plural = (*plural).into();
                target.name = more.first().and_then(owned);
                target.subresource = (more.len() > 1).then(|| more[1..].join("/"));
            }
            [plural, more @ ..] => {
                target.plural = (*plural).into();
                target.name = more.first().and_then(owned);
                target.subresource = (more.len() > 1).then(|| more[1..].join("/"));
            }
            [] => return Route::Unknown,
        }
        Route::Resource(target)
    }
}

/// Decodes one segment; nothing when it is empty, is no text, or could leave its place.
fn decode_segment(segment: &str) -> Option<String> {
    let text = percent_decode(segment, Plus::Literal)?;
    (!text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])).then_some(text)
}

/// What `+` means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    /// Itself, in paths.
    Literal,
    /// A space, in queries.
    Space,
}

/// Decodes `%41` and, in queries, `+`.
pub(crate) fn percent_decode(text: &str, plus: Plus) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            b'+' if plus == Plus::Space => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match Route::parse(path) {
            Route::Resource(target) => target,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn paths_name_what_they_name_in_kubernetes() {
        let pods = target("/api/v1/namespaces/a/pods/b/log");
        assert_eq!((pods.namespace.as_deref(), pods.plural.as_str()), (Some("a"), "pods"));
        assert_eq!((pods.name.as_deref(), pods.subresource.as_deref()), (Some("b"), Some("log")));
        let namespace = target("/api/v1/namespaces/a");
        assert_eq!(
            (namespace.namespace, namespace.plural.as_str(), namespace.name.as_deref()),
            (None, "namespaces", Some("a"))
        );
        let finalize = target("/api/v1/namespaces/a/finalize");
        assert_eq!((finalize.namespace, finalize.subresource.as_deref()), (None, Some("finalize")));
        let all = target("/apis/apps/v1/deployments");
        assert_eq!((all.group.as_str(), all.namespace, all.name), ("apps", None, None));
        assert!(target("/api/v1/watch/pods").watch);
    }

    #[test]
    fn tricks_with_segments_name_nothing() {
        for path in [
            "/api/v1/namespaces/%2e%2e/secrets",
            "/api/v1/namespaces/a%2Fb/secrets/x",
            "/api//v1/secrets",
            "/%00",
            "/api/v1/x/%ff",
        ] {
            assert_eq!(Route::parse(path), Route::Unknown, "{path}");
        }
    }
}
