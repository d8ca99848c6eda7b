//! The part that an operator's author writes.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::key::Key;
use crate::object::Object;

/// Makes the world look as one object says.
///
/// `reconcile` is called for a key whenever something that concerns it may have changed, never
/// twice at the same time for the same key, and again after every failure. It must come to the
/// same end however often it is called.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use kube::core::ObjectMeta;
/// use steersman::{Context, Error, Outcome, Reconciler};
///
/// /// Gives every namespace a ConfigMap with a greeting.
/// struct Greeter;
///
/// impl Reconciler for Greeter {
///     type Object = Namespace;
///
///     async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context) -> Result<Outcome, Error> {
///         cx.apply(&ConfigMap {
///             metadata: ObjectMeta {
///                 name: Some("greeting".into()),
///                 namespace: namespace.metadata.name.clone(),
///                 ..ObjectMeta::default()
///             },
///             data: Some([("hello".to_owned(), "world".to_owned())].into()),
///             ..ConfigMap::default()
///         })
///         .await?;
///         Ok(Outcome::Done)
///     }
/// }
/// ```
pub trait Reconciler: Send + Sync + 'static {
    /// The kind whose objects are reconciled.
    type Object: Object;

    /// Brings the world closer to what the object says.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;

    /// Cleans up what no owner reference takes away, before the object goes.
    ///
    /// Only called when the controller declares a finalizer with
    /// [`Controller::finalizer`](crate::Controller::finalizer); the finalizer is removed once
    /// this returns [`Finalized::Done`].
    fn finalize(
        &self,
        object: Arc<Self::Object>,
        cx: &Context,
    ) -> impl Future<Output = Result<Finalized, Error>> + Send {
        let _ = (object, cx);
        ready(Ok(Finalized::Done))
    }

    /// Called for a key whose object is gone; forgets what was kept in memory for it.
    fn gone(&self, key: &Key, cx: &Context) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = (key, cx);
        ready(Ok(()))
    }
}

/// What a reconcile that went well wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing until something changes.
    Done,
    /// Again, right after the others that wait.
    Requeue(&'static str),
    /// Again after a while, or earlier if something changes.
    RequeueAfter(Duration, &'static str),
}

/// How far a clean-up got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// All is cleaned up; the object may go.
    Done,
    /// Something is still under way; look again after this long.
    Pending(Duration),
}
