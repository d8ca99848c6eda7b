//! What happens when a real part cannot be had: a counted skip, or a failure where it is required.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use super::ProcessError;

/// Names the parts that must be there: `all`, or a list separated by commas.
const REQUIRE: &str = "STEER_REQUIRE_PARTS";
/// Names the file to which each skipped test appends one line.
const SKIPS_FILE: &str = "STEER_SKIPS_FILE";

/// Why a part is not there for a test.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// It is not on this machine.
    #[error("{part}: {what}; {remedy}")]
    Missing {
        /// The part's name, as in `cargo xtask parts`.
        part: &'static str,
        /// What was looked for and not found.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// It is there and does not work. That is never a reason to skip.
    #[error("{part} is installed but did not start: {reason}")]
    Broken {
        /// The part's name, as in `cargo xtask parts`.
        part: &'static str,
        /// What went wrong, with the end of the part's log where there is one.
        reason: ProcessError,
    },
}

impl Unavailable {
    pub(crate) fn missing(part: &'static str, what: impl Into<String>) -> Self {
        Self::Missing {
            part,
            what: what.into(),
            remedy: format!("install it with `cargo xtask parts install {part}`"),
        }
    }

    pub(crate) fn broken(part: &'static str) -> impl Fn(ProcessError) -> Self {
        move |reason| Self::Broken { part, reason }
    }

    /// The part's name, as in `cargo xtask parts`.
    pub fn part(&self) -> &'static str {
        match self {
            Self::Missing { part, .. } | Self::Broken { part, .. } => part,
        }
    }
}

/// The part, or `None` after [`skip`] has counted the test as skipped.
///
/// # Panics
/// As [`skip`] does.
pub fn or_skip<T>(found: Result<T, Unavailable>) -> Option<T> {
    match found {
        Ok(part) => Some(part),
        Err(unavailable) => {
            skip(&unavailable);
            None
        }
    }
}

/// Says that the running test is skipped, and appends it to the file that `STEER_SKIPS_FILE`
/// names, so that `make test` can sum up at the end.
///
/// # Panics
/// When the part is required by `STEER_REQUIRE_PARTS`, or is there and broken: then the test
/// has failed.
pub fn skip(unavailable: &Unavailable) {
    let required = env::var(REQUIRE).unwrap_or_default();
    if let Some(failure) = refusal(unavailable, &required) {
        panic!("{failure}");
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    report(test, unavailable);
    let Some(path) = env::var_os(SKIPS_FILE).filter(|path| !path.is_empty()) else { return };
    let line = format!("{test}: {unavailable}\n");
    // One write of one line to a file opened for appending: lines of parallel tests never mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot count the skipped test in {}: {error}", path.display());
    }
}

#[expect(clippy::print_stderr, reason = "a test's own output is where a skip is looked for")]
fn report(test: &str, unavailable: &Unavailable) {
    eprintln!("SKIPPED: {test}: {unavailable}");
}

/// Why this may not be skipped, given the value of `STEER_REQUIRE_PARTS`.
fn refusal(unavailable: &Unavailable, required: &str) -> Option<String> {
    if matches!(unavailable, Unavailable::Broken { .. }) {
        return Some(unavailable.to_string());
    }
    let part = unavailable.part();
    required
        .split(',')
        .map(str::trim)
        .any(|name| name == "all" || name == part)
        .then(|| format!("{REQUIRE}={required} forbids to skip this test, and {unavailable}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_may_be_skipped_unless_it_is_required() {
        let missing = Unavailable::missing("postgres", "no initdb found");
        assert_eq!(refusal(&missing, ""), None);
        assert_eq!(refusal(&missing, "kubernetes"), None);
        assert!(refusal(&missing, "all").is_some());
        assert!(refusal(&missing, "kubernetes, postgres").is_some());
    }

    #[test]
    fn a_broken_part_is_never_skipped() {
        let reason = ProcessError::Setup("disk full".into());
        let broken = Unavailable::Broken { part: "postgres", reason };
        let failure = refusal(&broken, "").expect("a refusal");
        assert_eq!(failure, "postgres is installed but did not start: disk full");
    }

    #[test]
    fn the_message_says_what_is_missing_and_how_to_get_it() {
        let missing = Unavailable::missing("postgres", "no initdb found");
        assert_eq!(
            missing.to_string(),
            "postgres: no initdb found; install it with `cargo xtask parts install postgres`"
        );
    }
}
