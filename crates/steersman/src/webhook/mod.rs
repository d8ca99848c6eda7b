//! Webhooks: judging and completing objects before the API server stores them, and converting them between
//! versions.
//!
//! ```text
//!   API server ──HTTPS──▶ server ──▶ Defaulter   (first: fills in what is missing)
//!                           │    ├─▶ Validator   (then: says what is wrong, field by field)
//!                           │    └─▶ Converter   (/convert: the same object in another version)
//!                           └── certificates: files, a Secret of our own, or made for this process
//!   install: the webhook configurations, with the CA that the API server must trust
//! ```
//!
//! A [`Manager`](crate::Manager) with [`Webhooks`] serves them from the moment it starts, on every replica
//! and before its caches: an API server that must ask a webhook cannot list the objects that need asking
//! about. What goes wrong has a defined effect:
//!
//! | what the code does | what the API server sees |
//! |---|---|
//! | finds problems | a refusal (422) that names every field |
//! | fails with an error | HTTP 500 with the error: the failure policy decides |
//! | panics | HTTP 500 with the panic's words, `controller_runtime_webhook_panics_total` counts it: the failure policy decides |
//! | takes longer than the API server waits | cut off shortly before, HTTP 504: the failure policy decides |
//!
//! # Example
//! ```
//! use steersman::Error;
//! use steersman::webhook::{Admission, Findings, Validator, WebhookOptions, Webhooks};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! /// ConfigMaps must hold something.
//! struct NotEmpty;
//!
//! impl Validator for NotEmpty {
//!     type Object = ConfigMap;
//!
//!     async fn create(&self, object: &ConfigMap, _: &Admission) -> Result<Findings, Error> {
//!         let mut findings = Findings::new();
//!         if object.data.is_none() {
//!             findings.required("data", "a ConfigMap without data helps nobody");
//!         }
//!         Ok(findings)
//!     }
//! }
//!
//! let webhooks = Webhooks::new(WebhookOptions::default()).validator(NotEmpty);
//! # drop(webhooks);
//! ```

mod authority;
mod certificates;
mod conversion;
mod findings;
mod handler;
mod install;
mod keeper;
mod patch;
mod review;
mod server;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use self::authority::Lifetimes;
pub use self::findings::{Findings, Problem};
pub use self::handler::{Admission, Defaulter, Operation, Validator};
use self::handler::{Defaults, Handler, Validates};
pub(crate) use self::keeper::{Certified, Keeper, Serving};
use crate::convert::{Convert, Converter};
use crate::object::Object;

/// Where every conversion is asked for.
pub(crate) const CONVERT: &str = "/convert";

/// Where webhooks are served, and how the API server finds and trusts them.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where to listen. Port 9443 on all addresses; port 0 picks a free one.
    pub address: SocketAddr,
    /// Which certificate to show. One made for this process alone.
    pub certificates: Certificates,
    /// How the API server reaches the address. [`Reach::Direct`].
    pub reach: Reach,
    /// What happens to requests while nobody answers. [`FailurePolicy::Fail`].
    pub failure_policy: FailurePolicy,
    /// How long the API server waits for an answer, 1 to 30 seconds. 10.
    pub timeout: Duration,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9443)),
            certificates: Certificates::Ephemeral,
            reach: Reach::Direct,
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Where the serving certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificates {
    /// Made at the start, for this process alone: right where there is one replica.
    Ephemeral,
    /// Made by the first replica and kept in a Secret that all replicas share. Certificate and CA are
    /// replaced long before they expire; a new CA is announced before anything is signed with it.
    Secret {
        /// The Secret's namespace.
        namespace: String,
        /// The Secret's name.
        name: String,
        /// How long certificates live.
        lifetimes: Lifetimes,
    },
    /// Read from files and read again when they change, as cert-manager and others replace them.
    Files {
        /// The certificate and those that lead to its CA, in PEM.
        certificate: PathBuf,
        /// Its key, in PEM.
        key: PathBuf,
        /// The CA to put into webhook configurations, in PEM. None: whoever made the files puts it there.
        ca: Option<PathBuf>,
    },
}

/// How the API server reaches webhooks; with it the webhook configurations are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At the address that is listened on, or at loopback where that is every address.
    Direct,
    /// At a URL, to which the paths are appended: `https://host:port`.
    Url(String),
    /// Behind a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// Somebody else writes the configurations.
    Unmanaged {
        /// The names and addresses that the certificate must be good for.
        names: Vec<String>,
    },
}

/// What the API server does when a webhook does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It refuses the request.
    #[default]
    Fail,
    /// It goes on without an answer.
    Ignore,
}

/// The webhooks of a manager.
pub struct Webhooks {
    pub(crate) options: WebhookOptions,
    pub(crate) handlers: Vec<Box<dyn Handler>>,
    pub(crate) converters: Vec<Box<dyn Convert>>,
}

impl Webhooks {
    /// No webhooks yet.
    pub fn new(options: WebhookOptions) -> Self {
        Self { options, handlers: Vec::new(), converters: Vec::new() }
    }

    /// Converts objects of a kind between its versions.
    ///
    /// At the start its CustomResourceDefinition is told to ask here, and to serve every version that the
    /// converter knows; so a definition may leave all but the hub unserved until somebody can convert them.
    #[must_use]
    pub fn converter<H: Object>(mut self, converter: Converter<H>) -> Self {
        self.converters.push(Box::new(converter));
        self
    }

    /// Judges objects of a kind.
    #[must_use]
    pub fn validator<V: Validator>(mut self, validator: V) -> Self {
        self.handlers.push(Box::new(Validates(validator)));
        self
    }

    /// Completes objects of a kind.
    #[must_use]
    pub fn defaulter<D: Defaulter>(mut self, defaulter: D) -> Self {
        self.handlers.push(Box::new(Defaults(defaulter)));
        self
    }

    /// What was put together wrongly, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut paths = std::collections::HashSet::new();
        for handler in &self.handlers {
            if !paths.insert(handler.path()) {
                return Err(format!(
                    "two webhooks would answer at {}; put what they do into one",
                    handler.path()
                ));
            }
        }
        let mut kinds = std::collections::HashSet::new();
        for resource in self.converters.iter().map(|converter| converter.resource()) {
            if !kinds.insert((resource.group.clone(), resource.kind.clone())) {
                return Err(format!("two converters of {}; put all versions into one", resource.kind));
            }
        }
        if self.options.timeout < Duration::from_secs(1) || self.options.timeout > Duration::from_secs(30) {
            return Err("the timeout of webhooks must be between 1 and 30 seconds".to_owned());
        }
        Ok(())
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut paths: Vec<String> = self.handlers.iter().map(|handler| handler.path()).collect();
        if !self.converters.is_empty() {
            paths.push(CONVERT.to_owned());
        }
        f.debug_struct("Webhooks").field("options", &self.options).field("paths", &paths).finish()
    }
}

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is not to be had.
    #[error(
        "cannot listen on {address} for webhooks: {source}; choose another address, or port 0 for a free one"
    )]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file with a certificate or key cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Certificate(String),
    /// The Secret with the certificate cannot be read or written.
    #[error("cannot keep the certificate in Secret {secret}: {message}")]
    Secret {
        /// `namespace/name`.
        secret: String,
        /// What the API server said.
        message: String,
    },
    /// The webhook configurations, or the definition of a kind to be converted, cannot be written.
    #[error("cannot write the webhook configuration {name}: {message}")]
    Install {
        /// Its name.
        name: String,
        /// What the API server said.
        message: String,
    },
}
