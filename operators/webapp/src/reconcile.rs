//! The reconciler: declare, observe, report.

use crate::desired::{self, MANAGED_BY};
use crate::{OPERATOR, Phase, WebApp, WebAppStatus, phase};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use steersman::{Context, Controller, Error, EventType, Object, Outcome, Reconciler};

/// How often a WebApp is looked at although nothing was heard of.
const DRIFT_CHECK: Duration = Duration::from_secs(30);

/// Reconciles WebApps.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebApps;

/// The controller of WebApps, ready to be added to a [`steersman::Manager`].
///
/// # Example
/// ```no_run
/// # async fn start(client: kube::Client) -> Result<(), steersman::ManagerError> {
/// use steersman::{CancellationToken, Manager, Options};
///
/// Manager::new(client, Options::named(steersman_webapp::OPERATOR))
///     .controller(steersman_webapp::controller())
///     .run(CancellationToken::new())
///     .await
/// # }
/// ```
pub fn controller() -> Controller<WebApps> {
    Controller::new(OPERATOR, WebApps)
        .owns::<Deployment>()
        .owns::<Service>()
        .field_manager(OPERATOR)
        .concurrency(4)
}

impl Reconciler for WebApps {
    type Object = WebApp;

    async fn reconcile(&self, webapp: Arc<WebApp>, cx: &Context) -> Result<Outcome, Error> {
        // What it owns goes by owner reference; declaring it again would bring it back.
        if webapp.metadata.deletion_timestamp.is_some() {
            if let Some(deployment) = cx.cache::<Deployment>().get(cx.key()) {
                cx.apply_status(&phase::report(&webapp, &deployment, cx.now())).await?;
            }
            return Ok(Outcome::Done);
        }
        if let Some(problem) = desired::problem(&webapp) {
            return refuse(&webapp, "InvalidName", &problem, cx).await;
        }
        let taken = taken::<Deployment>(&webapp, cx).or_else(|| taken::<Service>(&webapp, cx));
        if let Some(problem) = taken {
            return refuse(&webapp, "NameTaken", &problem, cx).await;
        }
        let deployment = cx.apply(&desired::deployment(&webapp)).await?;
        cx.apply(&desired::service(&webapp)).await?;
        cx.prune().await?;
        let status = phase::report(&webapp, &deployment, cx.now());
        announce(&webapp, &status, cx);
        cx.apply_status(&status).await?;
        Ok(Outcome::RequeueAfter(DRIFT_CHECK, "drift check"))
    }
}

/// Whether an object of the WebApp's name is there and belongs to somebody else; if so, in words.
///
/// What this operator once made and nobody owns now (the WebApp was deleted with its dependents
/// orphaned) is taken back.
fn taken<K: Object + Resource>(webapp: &WebApp, cx: &Context) -> Option<String> {
    let existing = cx.cache::<K>().get(cx.key())?;
    let mut controllers = existing.owner_references().iter().filter(|owner| owner.controller == Some(true));
    let problem = match controllers.next() {
        Some(owner) if Some(&owner.uid) == webapp.metadata.uid.as_ref() => return None,
        Some(owner) => format!("it belongs to {} {}", owner.kind, owner.name),
        None if existing.labels().get(MANAGED_BY).is_some_and(|by| by == OPERATOR) => return None,
        None => "it was made by somebody else".into(),
    };
    Some(format!(
        "{} {} exists already, and {problem}; delete it or create the WebApp under another name",
        K::kind(&()),
        cx.key()
    ))
}

/// Reports what is wrong, and waits until it changes.
async fn refuse(
    webapp: &WebApp,
    reason: &'static str,
    problem: &str,
    cx: &Context,
) -> Result<Outcome, Error> {
    let status = phase::failure(webapp, reason, problem, cx.now());
    if webapp.status.as_ref() != Some(&status) {
        cx.event(EventType::Warning, reason, problem);
    }
    cx.apply_status(&status).await?;
    Ok(Outcome::RequeueAfter(DRIFT_CHECK, "drift check"))
}

/// Tells in an event what a user waits for.
fn announce(webapp: &WebApp, status: &WebAppStatus, cx: &Context) {
    let before = webapp.status.as_ref().and_then(|status| status.phase);
    if before == status.phase {
        return;
    }
    let (have, want) = (status.available_replicas, webapp.spec.replicas);
    match status.phase {
        Some(Phase::Reconciling) if before.is_none() => {
            cx.event(EventType::Normal, "Created", "Declared Deployment and Service");
        }
        Some(Phase::Scaling) => {
            let had = webapp.status.as_ref().map_or(0, |status| status.replicas);
            cx.event(EventType::Normal, "Scaling", format!("Scaling from {had} to {want} replicas"));
        }
        Some(Phase::Ready) => {
            cx.event(EventType::Normal, "Ready", format!("{have} of {want} replicas are available"));
        }
        _ => {}
    }
}
