//! Rules for names, labels and annotations. Each function returns what is wrong, in Kubernetes' words.

/// The sorts of name that resources demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS subdomain, the usual.
    Subdomain,
    /// A DNS label: namespaces and services.
    Label,
    /// Anything that fits into one path segment: RBAC.
    PathSegment,
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PORT_NAME: &str = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Whether every dot-separated part is lower-case letters, digits and inner hyphens.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

/// A DNS-1123 subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !text.split('.').all(is_label) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

/// A DNS-1123 label.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) {
        errors.push(LABEL.to_owned());
    }
    errors
}

/// A DNS-1035 label, which begins with a letter.
pub(crate) fn label_1035(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        errors.push(crate::schema::formats::LABEL_RULE.to_owned());
    }
    errors
}

/// Something that fits into one path segment.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%']
        .iter()
        .filter(|character| text.contains(**character))
        .map(|character| format!("may not contain '{character}'"))
        .collect()
}

impl NameRule {
    /// What is wrong with a name.
    pub(crate) fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::PathSegment => path_segment(name),
        }
    }
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The key of a label or annotation: `[prefix/]name`.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a qualified name {QUALIFIED_TAIL} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified_part(name) {
        errors.push(QUALIFIED.to_owned());
    }
    errors
}

const QUALIFIED_TAIL: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(LABEL_VALUE.to_owned());
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if text.is_empty()
        || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        errors.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of a port (IANA service name).
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        errors.push(PORT_NAME.to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// The name of an environment variable.
pub(crate) fn environment_name(text: &str) -> Vec<String> {
    let printable = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'=';
    if text.is_empty() || !text.bytes().all(printable) {
        return vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        for good in ["a", "a-b", "a.b", "1a", "x9.y-z.w"] {
            assert!(subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".", "..", "a/b", "ä"] {
            assert!(!subdomain(bad).is_empty(), "{bad}");
        }
        assert!(
            !label("a.b").is_empty()
                && label(&"a".repeat(63)).is_empty()
                && !label(&"a".repeat(64)).is_empty()
        );
        assert!(
            path_segment("system:node").is_empty()
                && !path_segment("a/b").is_empty()
                && !path_segment("..").is_empty()
        );
    }

    #[test]
    fn keys_and_values_follow_the_rules_of_kubernetes() {
        for good in ["a", "example.com/A_b.c", "app.kubernetes.io/name"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "Ä", "EXAMPLE.com/a"] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
        assert!(
            label_value("").is_empty()
                && !label_value("_").is_empty()
                && !label_value(&"a".repeat(64)).is_empty()
        );
        assert!(
            config_key("a.b_c").is_empty() && !config_key("a/b").is_empty() && !config_key("..a").is_empty()
        );
        assert!(
            port_name("http-1").is_empty() && !port_name("80").is_empty() && !port_name("a--b").is_empty()
        );
        assert!(environment_name("A B").is_empty() && !environment_name("A=B").is_empty());
    }
}
