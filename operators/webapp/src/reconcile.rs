//! The reconciler: declare, observe, report.

use crate::desired::{self, MANAGED_BY};
use crate::pace::{Pace, When, is_new};
use crate::{OPERATOR, Phase, WebApp, WebAppStatus, phase};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use steersman::conditions;
use steersman::{Cache, Context, Controller, Error, EventType, Key, Object, Outcome, Reconciler};

/// How often a WebApp is looked at although nothing was heard of.
const DRIFT_CHECK: Duration = Duration::from_secs(30);

/// Reconciles WebApps.
#[derive(Debug, Default)]
pub struct WebApps {
    pace: Pace,
}

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
    Controller::new(OPERATOR, WebApps::default())
        .owns::<Deployment>()
        .owns::<Service>()
        .watches::<HorizontalPodAutoscaler>(scaled)
        .field_manager(OPERATOR)
        .concurrency(4)
}

impl Reconciler for WebApps {
    type Object = WebApp;

    async fn reconcile(&self, webapp: Arc<WebApp>, cx: &Context) -> Result<Outcome, Error> {
        // What it owns goes by owner reference; declaring it again would bring it back.
        if webapp.metadata.deletion_timestamp.is_some() {
            if let Some(deployment) = cx.cache::<Deployment>().get(cx.key()) {
                cx.apply_status(&phase::report(&webapp, &deployment, None, cx.now())).await?;
            }
            self.pace.forget(cx.key());
            return Ok(Outcome::Done);
        }
        if let Some(problem) = desired::problem(&webapp) {
            return refuse(&webapp, "InvalidName", &problem, cx).await;
        }
        let taken = taken::<Deployment>(&webapp, cx).or_else(|| taken::<Service>(&webapp, cx));
        if let Some(problem) = taken {
            return refuse(&webapp, "NameTaken", &problem, cx).await;
        }
        let wanted = match desired::deployment(&webapp, replicas(&webapp, cx)) {
            Ok(deployment) => deployment,
            Err(problem) => return refuse(&webapp, "InvalidPodTemplate", &problem, cx).await,
        };
        let deployment = cx.apply(&wanted).await?;
        let service = cx.apply(&desired::service(&webapp)).await?;
        cx.prune().await?;
        let status = phase::report(&webapp, &deployment, Some(&service), cx.now());
        match self.pace.of(cx.key(), &webapp, &status, &deployment, cx.now()) {
            When::Later(wait) => return Ok(Outcome::RequeueAfter(wait, "status")),
            When::Now => announce(&webapp, &status, cx),
        }
        cx.apply_status(&status).await?;
        Ok(Outcome::RequeueAfter(DRIFT_CHECK, "drift check"))
    }
}

/// The WebApp whose Deployment an autoscaler scales.
fn scaled(autoscaler: &HorizontalPodAutoscaler, _: &Cache) -> Vec<Key> {
    match target(autoscaler) {
        Some(name) => vec![Key::new(&autoscaler.namespace().unwrap_or_default(), name)],
        None => Vec::new(),
    }
}

fn target(autoscaler: &HorizontalPodAutoscaler) -> Option<&str> {
    let target = &autoscaler.spec.scale_target_ref;
    (target.kind == "Deployment").then_some(target.name.as_str())
}

/// How many replicas to declare: never a number that an autoscaler has decided otherwise.
///
/// One that scales the WebApp writes `spec.replicas`. One that scales the Deployment itself is left
/// alone: until it has written the number once, the one that is there is kept.
fn replicas(webapp: &WebApp, cx: &Context) -> Option<i32> {
    let namespace = webapp.namespace().unwrap_or_default();
    let name = webapp.name_any();
    let autoscalers = cx.cache::<HorizontalPodAutoscaler>().list_in(&namespace);
    let Some(autoscaler) = autoscalers.iter().find(|autoscaler| target(autoscaler) == Some(&name)) else {
        return Some(webapp.spec.replicas);
    };
    let has_scaled = autoscaler.status.as_ref().is_some_and(|status| status.last_scale_time.is_some());
    let current =
        cx.cache::<Deployment>().get(cx.key()).and_then(|deployment| deployment.spec.as_ref()?.replicas);
    if has_scaled { None } else { current.or(Some(webapp.spec.replicas)) }
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
    let conditions = webapp.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let was_degraded = conditions::find(conditions, "Degraded").is_some_and(|known| known.status == "True");
    if let Some(now) = conditions::find(&status.conditions, "Degraded").filter(|now| now.status == "True")
        && !was_degraded
    {
        cx.event(EventType::Warning, "Degraded", now.message.clone());
    }
    let before = webapp.status.as_ref().and_then(|status| status.phase);
    if before == status.phase {
        return;
    }
    let (have, want) = (status.available_replicas, webapp.spec.replicas);
    if webapp.status.as_ref().is_none_or(is_new) {
        cx.event(EventType::Normal, "Created", "Declared Deployment and Service");
    }
    match status.phase {
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
