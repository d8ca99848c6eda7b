//! Nodes that are not ready take no new pods: the taints that say so follow the `Ready` condition
//! and `spec.unschedulable`.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;
use std::sync::Arc;
use steersman::{Context, Controller, Error, Outcome, Reconciler};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Keeps the taints of nodes.
#[derive(Debug)]
pub(crate) struct NodeTaints;

/// The controller that keeps the taints of nodes.
pub(crate) fn controller() -> Controller<NodeTaints> {
    Controller::new("node-lifecycle-controller", NodeTaints).concurrency(1)
}

impl Reconciler for NodeTaints {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, cx: &Context) -> Result<Outcome, Error> {
        if let Some(taints) = plan(&node, cx.now()) {
            let patch = json!({
                "metadata": {"uid": node.uid(), "resourceVersion": node.resource_version()},
                "spec": {"taints": if taints.is_empty() { None } else { Some(taints) }},
            });
            cx.patch::<Node, _>(cx.key(), &Patch::Merge(&patch)).await?;
        }
        Ok(Outcome::Done)
    }
}

/// The taints a node should have, if it has others. Only ours are looked at.
fn plan(node: &Node, now: jiff::Timestamp) -> Option<Vec<Taint>> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    let spec = node.spec.as_ref();
    let mut wanted = Vec::new();
    match ready.map(|ready| ready.status.as_str()) {
        Some("True") => {}
        Some("Unknown") => wanted.push(UNREACHABLE),
        // A node that has never said anything is not ready.
        _ => wanted.push(NOT_READY),
    }
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push(UNSCHEDULABLE);
    }
    let taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let ours = |taint: &Taint| {
        taint.effect == "NoSchedule" && [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str())
    };
    let mut planned: Vec<Taint> =
        taints.iter().filter(|taint| !ours(taint) || wanted.contains(&taint.key.as_str())).cloned().collect();
    for key in wanted {
        if !planned.iter().any(|taint| ours(taint) && taint.key == key) {
            planned.push(Taint {
                key: key.into(),
                effect: "NoSchedule".into(),
                time_added: jiff::Timestamp::from_second(now.as_second()).ok().map(Time),
                value: None,
            });
        }
    }
    (planned != taints).then_some(planned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn keys(node: Value) -> Option<Vec<String>> {
        let node: Node = serde_json::from_value(node).expect("a node");
        plan(&node, jiff::Timestamp::UNIX_EPOCH)
            .map(|taints| taints.into_iter().map(|taint| taint.key).collect())
    }

    fn ready(status: &str) -> Value {
        json!({"conditions": [{"type": "Ready", "status": status}]})
    }

    #[test]
    fn taints_follow_readiness_and_leave_others_alone() {
        let mine = json!({"key": "mine", "effect": "NoExecute"});
        let not_ready = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let cases = [
            (json!({"status": ready("True")}), None),
            (json!({}), Some(vec![NOT_READY])),
            (json!({"status": ready("Unknown")}), Some(vec![UNREACHABLE])),
            (json!({"spec": {"taints": [not_ready]}, "status": ready("False")}), None),
            (json!({"spec": {"taints": [mine, not_ready]}, "status": ready("True")}), Some(vec!["mine"])),
            (json!({"spec": {"unschedulable": true}, "status": ready("True")}), Some(vec![UNSCHEDULABLE])),
        ];
        for (node, expected) in cases {
            let expected = expected.map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(keys(node.clone()), expected, "{node}");
        }
    }
}
