//! Writing a pod's status: one write at a time, always the newest, tried until it succeeds.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// Writes statuses as they come, until the sender is dropped and the last one is written. What
/// changes while a write is under way becomes one more write.
pub(crate) async fn report(
    api: Api<Pod>,
    name: String,
    uid: String,
    mut statuses: watch::Receiver<Option<PodStatus>>,
) {
    let mut delay = FIRST;
    let mut closed = false;
    while !closed {
        closed = statuses.changed().await.is_err();
        let Some(status) = statuses.borrow_and_update().clone() else { continue };
        loop {
            match api.patch_status(&name, &PatchParams::default(), &patch(&uid, &status)).await {
                Ok(_) => {
                    delay = FIRST;
                    break;
                }
                // Deleted, or another pod of that name: nothing to report to.
                Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => break,
                Err(error) => {
                    tracing::debug!(%error, pod = name, "status not written");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(LONGEST);
                    if statuses.has_changed().unwrap_or(false) {
                        break;
                    }
                }
            }
        }
    }
}

/// A strategic merge: conditions of others stay, what the node no longer says goes.
fn patch(uid: &str, status: &PodStatus) -> Patch<Value> {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        for key in ["reason", "message", "podIP", "initContainerStatuses"] {
            fields.entry(key).or_insert(Value::Null);
        }
        // Without the directive an address that changed would be added to the old one.
        for key in ["podIPs", "hostIPs"] {
            let list = fields.entry(key).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.insert(0, json!({"$patch": "replace"}));
            }
        }
    }
    Patch::Strategic(json!({"metadata": {"uid": uid}, "status": value}))
}

/// Confirms that a deleted pod's processes are gone, so that the API server removes it. Tried
/// until the server has answered.
pub(crate) async fn confirm_deleted(api: &Api<Pod>, name: &str, uid: &str) {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    let mut delay = FIRST;
    loop {
        match api.delete(name, &params).await {
            Ok(_) => return,
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => return,
            Err(error) => tracing::debug!(%error, pod = name, "deletion not confirmed yet"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_no_longer_said_is_removed() {
        let status = PodStatus { phase: Some("Running".into()), ..PodStatus::default() };
        let Patch::Strategic(patch) = patch("u", &status) else { panic!("a strategic merge") };
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["phase"], "Running");
        assert_eq!(patch["status"]["podIP"], Value::Null);
        assert_eq!(patch["status"]["podIPs"], json!([{"$patch": "replace"}]));
    }
}
