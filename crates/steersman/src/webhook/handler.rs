//! What an operator writes: validators and defaulters of its kinds.

use std::future::Future;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::core::ApiResource;
use serde_json::Value;

use super::findings::Findings;
use super::patch;
use super::review::{Request, Response};
use crate::error::Error;
use crate::object::Object;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// The request that is judged, besides its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// What is done.
    pub operation: Operation,
    /// The object's name; empty where the server is to generate it.
    pub name: String,
    /// The object's namespace; empty for objects in none.
    pub namespace: String,
    /// Who asks.
    pub user: String,
    /// The groups of who asks.
    pub groups: Vec<String>,
    /// Whether nothing will be stored: the code must not change the outside world then.
    pub dry_run: bool,
}

/// Judges objects of one kind.
///
/// A finding refuses the request; an error means that no judgement could be made.
pub trait Validator: Send + Sync + 'static {
    /// The kind.
    type Object: Object;
    /// The operations to be asked about. Creations and updates.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    /// Judges a new object.
    fn create(
        &self,
        object: &Self::Object,
        admission: &Admission,
    ) -> impl Future<Output = Result<Findings, Error>> + Send;

    /// Judges a changed object. As a new one, by default.
    fn update(
        &self,
        object: &Self::Object,
        old: &Self::Object,
        admission: &Admission,
    ) -> impl Future<Output = Result<Findings, Error>> + Send {
        let _ = old;
        self.create(object, admission)
    }

    /// Judges a deletion. Finds nothing, by default.
    fn delete(
        &self,
        object: &Self::Object,
        admission: &Admission,
    ) -> impl Future<Output = Result<Findings, Error>> + Send {
        let _ = (object, admission);
        std::future::ready(Ok(Findings::new()))
    }
}

/// Completes objects of one kind before they are judged and stored.
///
/// Only what the code changes is sent back: fields that the type does not know stay as they are.
pub trait Defaulter: Send + Sync + 'static {
    /// The kind.
    type Object: Object;

    /// Fills in what is missing.
    fn default(
        &self,
        object: &mut Self::Object,
        admission: &Admission,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The two sorts of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Changes objects.
    Mutating,
    /// Judges objects.
    Validating,
}

/// A validator or defaulter of any kind.
pub(crate) trait Handler: Send + Sync {
    fn sort(&self) -> Sort;
    fn resource(&self) -> ApiResource;
    fn is_namespaced(&self) -> bool;
    fn operations(&self) -> &'static [Operation];
    fn handle<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Response, Error>>;

    /// The path in kubebuilder's form: `/validate-example-com-v1-webapp`.
    fn path(&self) -> String {
        let resource = self.resource();
        let verb = match self.sort() {
            Sort::Mutating => "mutate",
            Sort::Validating => "validate",
        };
        let group = resource.group.replace('.', "-");
        format!("/{verb}-{group}-{}-{}", resource.version, resource.kind.to_lowercase())
    }
}

pub(super) struct Validates<V>(pub(super) V);

impl<V: Validator> Handler for Validates<V> {
    fn sort(&self) -> Sort {
        Sort::Validating
    }

    fn resource(&self) -> ApiResource {
        V::Object::api_resource()
    }

    fn is_namespaced(&self) -> bool {
        V::Object::is_namespaced()
    }

    fn operations(&self) -> &'static [Operation] {
        V::OPERATIONS
    }

    fn handle<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Response, Error>> {
        async move {
            let admission = &request.admission;
            let findings = match admission.operation {
                Operation::Create => match read(&request.object) {
                    Ok(object) => self.0.create(&object, admission).await?,
                    Err(why) => Findings::unreadable(&why),
                },
                Operation::Update => match (read(&request.object), read(&request.old)) {
                    (Ok(object), Ok(old)) => self.0.update(&object, &old, admission).await?,
                    // What is stored may predate the type: then only the new object can be judged.
                    (Ok(object), Err(_)) => self.0.create(&object, admission).await?,
                    (Err(why), _) => Findings::unreadable(&why),
                },
                Operation::Delete => match read(&request.old) {
                    Ok(old) => self.0.delete(&old, admission).await?,
                    // An object that nobody can read must at least be deletable.
                    Err(_) => Findings::new(),
                },
            };
            let resource = self.resource();
            Ok(Response {
                refusal: findings.refusal(&resource.group, &resource.kind, &admission.name),
                warnings: findings.warnings().to_vec(),
                patch: None,
            })
        }
        .boxed()
    }
}

pub(super) struct Defaults<D>(pub(super) D);

impl<D: Defaulter> Handler for Defaults<D> {
    fn sort(&self) -> Sort {
        Sort::Mutating
    }

    fn resource(&self) -> ApiResource {
        D::Object::api_resource()
    }

    fn is_namespaced(&self) -> bool {
        D::Object::is_namespaced()
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handle<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Response, Error>> {
        async move {
            // An object on its way out is left alone: a default could keep its finalizers from going.
            let leaving = request.object.pointer("/metadata/deletionTimestamp").is_some();
            let mut object: D::Object = match read(&request.object) {
                Ok(object) if !leaving => object,
                // What cannot be read is the validator's or the schema's to refuse.
                _ => return Ok(Response::default()),
            };
            let before = serde_json::to_value(&object)?;
            self.0.default(&mut object, &request.admission).await?;
            let after = serde_json::to_value(&object)?;
            Ok(Response { patch: patch::between(&request.object, &before, &after)?, ..Response::default() })
        }
        .boxed()
    }
}

fn read<K: Object>(object: &Value) -> Result<K, serde_json::Error> {
    K::deserialize(object)
}
