//! The objects that one object is made of, in the order in which they come up and go down.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Resource;

use crate::context::Context;
use crate::error::Error;
use crate::key::Key;
use crate::object::Object;

/// Objects that the reconciled one is made of.
///
/// [`apply`](Self::apply) declares them one after the other and goes no further than to the
/// first that is not ready; [`delete`](Self::delete) takes them away in the reverse order, each
/// only after the one that needs it is gone. Both may be called as often as one likes. Kinds
/// must be declared with [`Controller::owns`](crate::Controller::owns): that is what brings the
/// reconciler back when one becomes ready.
///
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::{apps::v1::{Deployment, StatefulSet}, core::v1::ConfigMap};
/// # use steersman::{Context, Dependents, Error, Outcome, Progress};
/// # async fn reconcile(cx: &Context, database: StatefulSet, web: Deployment) -> Result<Outcome, Error> {
/// let progress = Dependents::new(cx)
///     .object_ready_when(database, |live| {
///         live.status.as_ref().is_some_and(|status| status.ready_replicas >= Some(1))
///     })
///     .object(web) // not before the database is ready
///     .apply()
///     .await?;
/// if let Progress::Waiting { on } = progress {
///     cx.event(steersman::EventType::Normal, "Waiting", format!("waiting for {on}"));
/// }
/// # Ok(Outcome::Done) }
/// ```
pub struct Dependents<'a> {
    cx: &'a Context,
    steps: Vec<Box<dyn Step + 'a>>,
}

/// How far the objects have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of them are as they should be: ready, or gone.
    Complete,
    /// One of them is not, such as `Deployment shop/web`, and what comes after it waits.
    Waiting {
        /// Its kind and key.
        on: String,
    },
}

impl Progress {
    /// Whether nothing is waited for.
    pub fn is_complete(&self) -> bool {
        *self == Self::Complete
    }
}

impl<'a> Dependents<'a> {
    /// None yet.
    pub fn new(cx: &'a Context) -> Self {
        Self { cx, steps: Vec::new() }
    }

    /// An object that is ready as soon as it is there.
    #[must_use]
    pub fn object<K: Object>(self, object: K) -> Self {
        self.object_ready_when(object, |_| true)
    }

    /// An object after which the next ones wait until `ready` holds.
    #[must_use]
    pub fn object_ready_when<K: Object>(
        mut self,
        object: K,
        ready: impl Fn(&K) -> bool + Send + Sync + 'a,
    ) -> Self {
        self.steps.push(Box::new(Dependent { object, ready: Box::new(ready) }));
        self
    }

    /// Declares the objects in order, as far as they are ready, and prunes what is not among
    /// them any more.
    ///
    /// # Errors
    /// Those of [`Context::apply`] and [`Context::prune`].
    pub async fn apply(self) -> Result<Progress, Error> {
        let mut progress = Progress::Complete;
        for step in &self.steps {
            // What comes later is still wanted, and must not be pruned.
            step.keep(self.cx);
            if progress.is_complete() && !step.apply(self.cx).await? {
                progress = Progress::Waiting { on: step.name(self.cx) };
            }
        }
        self.cx.prune().await?;
        Ok(progress)
    }

    /// Deletes the objects in the reverse order, as far as those before them are gone.
    ///
    /// # Errors
    /// Those of [`Context::delete`].
    pub async fn delete(self) -> Result<Progress, Error> {
        for step in self.steps.iter().rev() {
            if !step.delete(self.cx).await? {
                return Ok(Progress::Waiting { on: step.name(self.cx) });
            }
        }
        Ok(Progress::Complete)
    }
}

impl fmt::Debug for Dependents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.steps.iter().map(|step| step.name(self.cx)).collect();
        f.debug_tuple("Dependents").field(&names).finish()
    }
}

/// A dependent whose type does not matter any more.
trait Step: Send + Sync {
    fn name(&self, cx: &Context) -> String;
    fn keep(&self, cx: &Context);
    /// Declares it; whether it is ready.
    fn apply<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Result<bool, Error>>;
    /// Deletes it; whether it is gone.
    fn delete<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Result<bool, Error>>;
}

struct Dependent<'r, K> {
    object: K,
    ready: Box<dyn Fn(&K) -> bool + Send + Sync + 'r>,
}

impl<K: Object> Dependent<'_, K> {
    fn key(&self, cx: &Context) -> Key {
        let meta = self.object.meta();
        let namespace = match K::is_namespaced() {
            true => meta.namespace.as_deref().or(cx.key().namespace()).unwrap_or_default(),
            false => "",
        };
        Key::new(namespace, meta.name.as_deref().unwrap_or_default())
    }
}

impl<K: Object + Resource<DynamicType = ()>> Step for Dependent<'_, K> {
    fn name(&self, cx: &Context) -> String {
        format!("{} {}", K::kind(&()), self.key(cx))
    }

    fn keep(&self, cx: &Context) {
        cx.keep::<K>(self.key(cx));
    }

    fn apply<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Result<bool, Error>> {
        async {
            let live: Arc<K> = cx.apply(&self.object).await?;
            Ok(live.meta().deletion_timestamp.is_none() && (self.ready)(&live))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Result<bool, Error>> {
        async {
            let key = self.key(cx);
            let Some(live) = cx.cache::<K>().get(&key) else {
                return Ok(true);
            };
            if live.meta().deletion_timestamp.is_none() {
                cx.delete(&*live).await?;
            }
            Ok(cx.cache::<K>().get(&key).is_none())
        }
        .boxed()
    }
}
