//! From the names that people give to names that any Kubernetes server takes.

use sha2::{Digest, Sha256};

/// The longest name of a type or version within an object's name.
const LONGEST: usize = 63;

/// A name in lower case that can stand in an object's name. One that has other characters than
/// letters, digits and dashes gets them replaced, and a few digits that keep it apart.
pub fn slug(name: &str) -> String {
    let lower = name.to_lowercase();
    if is_label(&lower) {
        return lower;
    }
    let digest = Sha256::digest(lower.as_bytes());
    let digits: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let kept = lower.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let kept: String = kept.take(LONGEST - 11).collect();
    match kept.trim_matches('-') {
        "" => digits,
        kept => format!("{kept}-{digits}"),
    }
}

/// Whether a name can stand in an object's name as it is; those that people give to resources must.
pub(crate) fn is_label(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The name of the ResourceType object of a type and version.
pub fn type_object_name(name: &str, version: &str) -> String {
    format!("{}.{}", slug(name), slug(version))
}

/// The name of the Resource object of a type and a resource's name: one per type and name,
/// whatever the version.
pub fn object_name(type_name: &str, name: &str) -> String {
    format!("{}.{name}", slug(type_name))
}

/// The name of a resource within its type, out of the name of its object.
pub fn short_name<'a>(type_name: &str, object: &'a str) -> &'a str {
    let prefix = format!("{}.", slug(type_name));
    object.strip_prefix(&prefix).filter(|rest| !rest.is_empty()).unwrap_or(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_only_lose_their_capitals() {
        assert_eq!(type_object_name("DatabaseCluster", "v1beta1"), "databasecluster.v1beta1");
        assert_eq!(object_name("DatabaseCluster", "production-pg"), "databasecluster.production-pg");
        assert_eq!(short_name("DatabaseCluster", "databasecluster.production-pg"), "production-pg");
        assert_eq!(short_name("DatabaseCluster", "made-with-kubectl"), "made-with-kubectl");
    }

    #[test]
    fn any_other_name_becomes_a_valid_one_and_stays_apart_from_its_likes() {
        let long = "x".repeat(300);
        let names = ["a_b", "a b", "a/b", "'; drop table--", "../..", "ü", "-", "a.b", &long];
        let slugs: Vec<String> = names.iter().map(|name| slug(name)).collect();
        for slug in &slugs {
            assert!(is_label(slug), "{slug}");
        }
        let distinct: std::collections::HashSet<&String> = slugs.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}
