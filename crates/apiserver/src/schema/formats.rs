//! The `format`s of text that Kubernetes checks.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::OnceLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use regex::Regex;

/// The rule for DNS labels in the words of Kubernetes.
pub(crate) const LABEL_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
     start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
     regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Whether `text` has the format; `None` for formats that are not checked.
pub(super) fn check(format: &str, text: &str) -> Option<bool> {
    Some(match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => matches(text, r"(?i)^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$|^([0-9a-f]{4}\.){2}[0-9a-f]{4}$"),
        "uuid" => matches(text, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        "uuid3" => matches(text, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        "uuid4" => {
            matches(text, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
        }
        "uuid5" => {
            matches(text, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
        }
        "byte" => STANDARD.decode(text).is_ok(),
        "uri" => text.starts_with('/') || matches(text, r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$"),
        "email" => matches(text, r"^[^@\s]+@[^@\s]+$"),
        "hostname" => is_hostname(text),
        "hexcolor" => matches(text, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        "rgbcolor" => matches(
            text,
            r"^rgb\(\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*(,\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*){2}\)$",
        ),
        "ssn" => matches(text, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
        "bsonobjectid" => matches(text, r"^[0-9a-fA-F]{24}$"),
        "k8sshortname" => text.len() <= 63 && matches(text, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        "k8slongname" => {
            text.len() <= 253
                && matches(text, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        }
        _ => return None,
    })
}

/// Whether Kubernetes knows this `format` for text.
pub(super) fn is_known(format: &str) -> bool {
    check(format, "").is_some() || matches!(format, "password" | "isbn" | "isbn10" | "isbn13" | "creditcard")
}

/// Whether the text is a DNS label that begins with a letter.
pub(crate) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|byte| *byte != b'-')
        && bytes.iter().all(|byte| inner(*byte))
}

fn matches(text: &str, pattern: &'static str) -> bool {
    use std::{collections::HashMap, sync::Mutex};
    /// Compiled once each; the patterns are the literals of this file.
    static COMPILED: OnceLock<Mutex<HashMap<&'static str, Option<Regex>>>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(Mutex::default);
    let mut compiled = compiled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// RFC 3339, also with a lower-case `t` or a space, as Kubernetes reads it.
fn is_date_time(text: &str) -> bool {
    matches(text, r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$")
        && text.replacen(' ', "T", 1).to_uppercase().parse::<jiff::Timestamp>().is_ok()
}

/// Go's durations (`1h30m`), and numbers with a spelt-out unit (`22 ns`, `3 days`).
fn is_duration(text: &str) -> bool {
    text == "0"
        || matches(text, r"^[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$")
        || matches(
            text,
            r"^\d+\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)$",
        )
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|character| character.is_alphanumeric() || character == '-')
    };
    text.len() <= 255 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn formats_tell_good_text_from_bad() {
        for (format, good, bad) in [
            (
                "date-time",
                &["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+01:00"][..],
                &["yesterday", "2026-13-01T00:00:00Z"][..],
            ),
            ("date", &["2026-01-02"], &["x", "2026-02-30", "20260102"]),
            ("duration", &["1h30m", "5s", "0", "22 ns", "3 days", "-1.5h"], &["soon", "5", ""]),
            ("ipv4", &["10.0.0.1"], &["10.0.0.300", "::1"]),
            ("ipv6", &["::1"], &["10.0.0.1"]),
            ("cidr", &["10.0.0.0/8", "fd00::/8"], &["10.0.0.0/99", "10.0.0.0", "x/8"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
            ("byte", &["aGk=", ""], &["!!!"]),
            ("hostname", &["a.example.com"], &["-a", "a..b"]),
            ("mac", &["00:11:22:33:44:55"], &["00:11"]),
            ("uri", &["http://x/y", "/a"], &["not a uri"]),
            ("k8s-short-name", &["a-b"], &["A", "a.b"]),
        ] {
            for text in good {
                assert_eq!(check(format, text), Some(true), "{format} {text}");
            }
            for text in bad {
                assert_eq!(check(format, text), Some(false), "{format} {text}");
            }
        }
        assert_eq!(check("made-up", "anything"), None);
        assert_eq!(check("int32", "anything"), None);
    }
}
