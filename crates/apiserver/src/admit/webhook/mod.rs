//! Admission webhooks: asking other programs about a write before it happens.
//!
//! ```text
//!   decode ─ default ─ mutating webhooks, one after the other ─ prepare, validate
//!                      (again, where a later one changed something)      │
//!                                          store ◀─ validating webhooks, all at once
//! ```
//!
//! [`config`] reads the configurations, [`rules`] and [`conditions`] decide who is asked, [`review`] writes the question and
//! reads the answer, [`client`] carries both, [`dispatch`] puts them in order and decides what a failure means.

mod client;
mod conditions;
mod config;
mod dispatch;
mod review;
mod rules;

use serde_json::Value;

pub(crate) use self::{client::CallError, config::Callee};
use self::{client::Clients, config::Configurations};
use crate::{
    engine::Engine,
    server::User,
    types::{Resource, Scope},
};

/// What is kept between requests: read configurations and open connections.
#[derive(Default)]
pub(crate) struct Webhooks {
    configurations: Configurations,
    clients: Clients,
}

impl Webhooks {
    /// Asks a webhook of any sort a question.
    pub(crate) async fn ask(
        &self,
        callee: &Callee,
        engine: &Engine,
        question: &Value,
    ) -> Result<Value, CallError> {
        self.clients.ask(callee, engine, question).await
    }
}

/// What is done to an object, in the words of `AdmissionReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is to go.
    Delete,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Group, version and kind of what a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl Kind {
    /// The kind of a resource's objects.
    pub(crate) fn of(resource: &Resource) -> Self {
        Self::new(&resource.group, &resource.version, &resource.kind)
    }

    /// A kind by its names.
    pub(crate) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }
}

/// A request as webhooks get to know it, without the objects.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
    pub(crate) user: &'a User,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    /// Of the object that the request carries, which a subresource may have another one of.
    pub(crate) kind: Kind,
    pub(crate) verb: Verb,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) rehearsal: Rehearsal,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: Value,
}

/// Whether anything is stored in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rehearsal {
    /// It is.
    No,
    /// The request is a dry run.
    DryRun,
}

impl Attributes<'_> {
    /// Whether the request is about configurations of admission itself, which are nobody's to refuse.
    fn is_exempt(&self) -> bool {
        self.kind.group == "admissionregistration.k8s.io"
            && matches!(
                self.kind.kind.as_str(),
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }

    /// The namespace that selectors and rules look at: that of a Namespace is its own.
    fn effective_namespace(&self) -> &str {
        if self.namespace.is_empty() && self.is_namespace() { &self.name } else { &self.namespace }
    }

    fn is_namespace(&self) -> bool {
        self.resource.scope == Scope::Cluster
            && self.resource.group.is_empty()
            && &*self.resource.plural == "namespaces"
    }
}
