//! The order of API versions: `v2`, `v1`, `v1beta1`, `v1alpha1`, then all others by name.

use std::cmp::Ordering;

/// Compares two versions; the more stable and then the newer is the greater.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Of names that are no versions the first in the alphabet is preferred.
        (None, None) => right.cmp(left),
    }
}

/// Stability (2 for stable, 1 beta, 0 alpha), major and minor.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    for (word, stability) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

fn number(text: &str) -> Option<u64> {
    if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn stable_versions_come_before_previews_and_newer_before_older() {
        let mut versions =
            ["foo10", "v1alpha1", "v2", "v10", "v1beta1", "v11alpha2", "v1", "foo1", "v3beta1", "v12alpha1"];
        versions.sort_by(|left, right| compare(right, left));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v3beta1", "v1beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"]
        );
    }
}
