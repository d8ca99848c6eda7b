//! Every kubectl that was found says which one it is.

use xtask::parts;

#[test]
fn kubectls_are_found_oldest_first_and_once_each() {
    let Some(found) = parts::or_skip(parts::kubectls()) else { return };
    assert!(found.windows(2).all(|pair| pair[0].version < pair[1].version), "{found:?}");
    for kubectl in found {
        assert!(kubectl.path.is_file(), "{}", kubectl.path.display());
        assert_eq!(kubectl.version.major, 1);
    }
}
