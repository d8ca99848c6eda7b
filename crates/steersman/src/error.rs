//! What a reconciler may fail with.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why a reconcile failed, and whether trying again can help.
///
/// Every standard error turns into one with `?` and is retried with growing delays.
/// What no retry can mend is made with [`Error::terminal`].
pub struct Error {
    source: Box<dyn StdError + Send + Sync>,
    retry: Retry,
}

/// What the queue does after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Exponential back-off.
    BackOff,
    /// The server said when to come back.
    After(Duration),
    /// Not before something changes.
    Never,
    /// Something else must happen first; look again after this long if nothing is heard of it.
    Wait(Duration),
}

impl Error {
    /// An error from a sentence.
    pub fn msg(message: impl Into<String>) -> Self {
        Self { source: message.into().into(), retry: Retry::BackOff }
    }

    /// An error that is not retried until the object changes: wrong input, a missing feature.
    pub fn terminal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: error.into(), retry: Retry::Never }
    }

    /// Not a failure: the reconcile goes on once something else has happened, such as
    /// `Error::wait_for("Secret shop/database")`.
    ///
    /// Nothing is counted or logged as an error and no back-off grows. What is waited for
    /// should be watched; in case it is not, the key comes again after half a minute.
    pub fn wait_for(what: impl Into<String>) -> Self {
        const AGAIN: Duration = Duration::from_secs(30);
        Self { source: format!("waiting for {}", what.into()).into(), retry: Retry::Wait(AGAIN) }
    }

    /// The same error, with words in front that say what was being done.
    #[must_use]
    pub fn context(self, doing: impl fmt::Display) -> Self {
        Self {
            source: Box::new(Explained { doing: doing.to_string(), source: self.source }),
            retry: self.retry,
        }
    }

    /// Whether the reconcile waits for a change instead of a retry.
    pub fn is_terminal(&self) -> bool {
        self.retry == Retry::Never
    }

    /// Whether the reconcile waits for something else to happen.
    pub fn is_waiting(&self) -> bool {
        matches!(self.retry, Retry::Wait(_))
    }

    /// The underlying error.
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// The API server's answer, if that is what went wrong.
    pub fn status(&self) -> Option<&kube::core::Status> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&*self.source);
        while let Some(error) = cause {
            if let Some(kube::Error::Api(status)) = error.downcast_ref() {
                return Some(status);
            }
            cause = error.source();
        }
        None
    }

    /// Whether the API server answered with this HTTP status code.
    pub fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    pub(crate) fn retry(&self) -> Retry {
        match self.retry {
            Retry::BackOff => match self.status().and_then(|status| status.details.as_ref()) {
                Some(details) if details.retry_after_seconds > 0 => {
                    Retry::After(Duration::from_secs(details.retry_after_seconds.into()))
                }
                _ => Retry::BackOff,
            },
            other => other,
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self { source: Box::new(error), retry: Retry::BackOff }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // kube prints an API error with all of its fields; people want its sentence.
        match self.source.downcast_ref() {
            Some(kube::Error::Api(status)) => f.write_str(&status.message),
            _ => fmt::Display::fmt(&self.source, f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("source", &self.source).field("retry", &self.retry).finish()
    }
}

#[derive(Debug)]
struct Explained {
    doing: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.downcast_ref() {
            Some(kube::Error::Api(status)) => write!(f, "{}: {}", self.doing, status.message),
            _ => write!(f, "{}: {}", self.doing, self.source),
        }
    }
}

impl StdError for Explained {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict() -> kube::Error {
        kube::Error::Api(
            kube::core::Status::failure("the object has been modified", "Conflict").with_code(409).boxed(),
        )
    }

    #[test]
    fn any_error_is_retried_unless_it_says_otherwise() {
        fn fails() -> Result<(), Error> {
            "not a number".parse::<u32>()?;
            Ok(())
        }
        let error = fails().expect_err("no number");
        assert_eq!(error.retry(), Retry::BackOff);
        assert!(Error::terminal("no such plugin").is_terminal());
        let waiting = Error::wait_for("Secret shop/database").context("starting");
        assert!(waiting.is_waiting() && !waiting.is_terminal());
        assert_eq!(waiting.to_string(), "starting: waiting for Secret shop/database");
    }

    #[test]
    fn the_servers_answer_is_found_under_context() {
        let error = Error::from(conflict()).context("scaling Deployment shop/web");
        assert!(error.has_code(409));
        assert_eq!(error.to_string(), "scaling Deployment shop/web: the object has been modified");
    }

    #[test]
    fn a_servers_retry_after_is_honoured() {
        let mut status = kube::core::Status::failure("slow down", "TooManyRequests").with_code(429);
        status.details = Some(kube::core::response::StatusDetails {
            retry_after_seconds: 7,
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
        });
        let error = Error::from(kube::Error::Api(status.boxed()));
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
    }
}
