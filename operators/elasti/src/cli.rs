//! What `steer elasti` does, as functions: a [`kube::Client`] in, text out.

use crate::scale::{self, ScaleError};
use crate::types::{ElastiService, Mode};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fmt::Write;

/// The annotation that asks for sleep: the time of the wish. It counts until somebody needs the
/// service again.
pub const SLEEP: &str = "elasti.steersman.io/sleep-requested-at";

/// Why a command could not be done.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// There is no such ElastiService.
    #[error(
        "there is no ElastiService named {name} in namespace {namespace}; `steer elasti list -A` shows all"
    )]
    NotFound {
        /// Its name.
        name: String,
        /// And its namespace.
        namespace: String,
    },
    /// The target cannot be scaled.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The API server said something else.
    #[error("the API server refused: {0}")]
    Api(#[source] Box<kube::Error>),
}

/// ElastiServices of a namespace, or of all.
///
/// # Errors
/// When the API server refuses.
pub async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<ElastiService>, CliError> {
    let api: Api<ElastiService> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut items =
        api.list(&ListParams::default()).await.map_err(|error| CliError::Api(error.into()))?.items;
    items.sort_by_key(|one| (one.namespace(), one.name_any()));
    Ok(items)
}

/// One ElastiService.
///
/// # Errors
/// When it is not there, or the API server refuses.
pub async fn get(client: &Client, namespace: &str, name: &str) -> Result<ElastiService, CliError> {
    let api: Api<ElastiService> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|error| CliError::Api(error.into()))?;
    found.ok_or_else(|| CliError::NotFound { name: name.to_owned(), namespace: namespace.to_owned() })
}

/// Wakes the target of an ElastiService.
///
/// # Errors
/// When it is not there, or its target cannot be scaled.
pub async fn wake(client: &Client, namespace: &str, name: &str) -> Result<(), CliError> {
    let elasti = get(client, namespace, name).await?;
    Ok(scale::wake_target(client, namespace, &elasti).await?)
}

/// Asks the operator to put the target of an ElastiService to sleep without waiting for the
/// cooldown. Somebody who needs it now keeps it awake.
///
/// # Errors
/// When it is not there, or the API server refuses.
pub async fn sleep(client: &Client, namespace: &str, name: &str, now: Timestamp) -> Result<(), CliError> {
    get(client, namespace, name).await?;
    let api: Api<ElastiService> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"metadata": {"annotations": {SLEEP: now.to_string()}}});
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.map(drop).map_err(|error| CliError::Api(error.into()))
}

/// A line for each.
pub fn table(all: &[ElastiService], now: Timestamp) -> String {
    if all.is_empty() {
        return "No ElastiServices found.\n".to_owned();
    }
    let head = ["NAMESPACE", "NAME", "SERVICE", "TARGET", "MODE", "STATE", "REPLICAS", "NEEDED"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(all.iter().map(|one| {
        [
            one.namespace().unwrap_or_default(),
            one.name_any(),
            one.spec.service.clone(),
            target(one),
            mode(one).to_owned(),
            state(one).0,
            replicas(one),
            needed(one, now),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One in full.
pub fn details(one: &ElastiService, now: Timestamp) -> String {
    let mut text = String::new();
    let mut say = |name: &str, value: &str| {
        let _ = writeln!(text, "{:<12}{value}", format!("{name}:"));
    };
    say("Name", &format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any()));
    say("Service", &one.spec.service);
    say("Target", &target(one));
    let (reason, message) = state(one);
    say("State", &format!("{reason}: {message}"));
    say("Mode", mode(one));
    say("Replicas", &format!("{} (woken to {})", replicas(one), one.spec.min_target_replicas.max(1)));
    say("Needed", &needed(one, now));
    say("Cooldown", &format!("{} s", one.spec.cooldown_period));
    let conditions = one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    for condition in conditions.iter().filter(|one| one.type_ != "Ready" && one.status != "True") {
        say("Trouble", &format!("{}: {}", condition.type_, condition.message));
    }
    text
}

fn target(one: &ElastiService) -> String {
    let target = &one.spec.scale_target_ref;
    format!("{}/{}", target.kind.to_lowercase().trim_end_matches('s'), target.name)
}

fn mode(one: &ElastiService) -> &'static str {
    match one.status.as_ref().and_then(|status| status.mode) {
        Some(Mode::Proxy) => "proxy",
        Some(Mode::Serve) => "serve",
        None => "-",
    }
}

/// The reason of the condition Ready, and its sentence.
fn state(one: &ElastiService) -> (String, String) {
    let conditions = one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map_or_else(
        || ("Unknown".into(), "no operator has looked at it yet".into()),
        |ready| (ready.reason.clone(), ready.message.clone()),
    )
}

fn replicas(one: &ElastiService) -> String {
    let replicas = one.status.as_ref().and_then(|status| status.replicas);
    replicas.map_or_else(|| "-".to_owned(), |replicas| replicas.to_string())
}

fn needed(one: &ElastiService, now: Timestamp) -> String {
    let last = one.status.as_ref().and_then(|status| status.last_scaled_up_time.as_ref());
    last.map_or_else(|| "never".to_owned(), |time| format!("{} ago", ago(now.duration_since(time.0))))
}

fn ago(duration: SignedDuration) -> String {
    match duration.as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn one(status: &Value) -> ElastiService {
        serde_json::from_value(
            json!({"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"service": "web",
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"}},
            "status": status}),
        )
        .expect("an ElastiService")
    }

    #[test]
    fn a_line_says_what_one_wants_to_know() {
        let now: Timestamp = "2026-03-03T12:00:00Z".parse().expect("a time");
        let asleep = one(&json!({"mode": "proxy", "replicas": 0, "lastScaledUpTime": "2026-03-03T11:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Asleep", "message": "It sleeps",
                "lastTransitionTime": "2026-03-03T11:30:00Z"}]}));
        assert_eq!(
            table(&[asleep, one(&json!({}))], now),
            "NAMESPACE  NAME  SERVICE  TARGET          MODE   STATE    REPLICAS  NEEDED\n\
             shop       web   web      deployment/web  proxy  Asleep   0         60m ago\n\
             shop       web   web      deployment/web  -      Unknown  -         never\n"
        );
        assert_eq!(table(&[], now), "No ElastiServices found.\n");
    }

    #[test]
    fn details_name_what_is_wrong() {
        let time = "2026-03-03T11:30:00Z";
        let text = details(
            &one(&json!({"mode": "serve", "replicas": 2, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Serving", "message": "Requests go to the pods",
                    "lastTransitionTime": time},
                {"type": "TriggerHealthy", "status": "False", "reason": "Unknown", "message": "p:9090 cannot be reached",
                    "lastTransitionTime": time}]})),
            time.parse().expect("a time"),
        );
        assert!(text.contains("State:      Serving: Requests go to the pods\n"), "{text}");
        assert!(text.contains("Trouble:    TriggerHealthy: p:9090 cannot be reached\n"), "{text}");
    }
}
