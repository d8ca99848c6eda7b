//! Which node a pod fits on, decided without any I/O.

use crate::pods::{is_terminal, node_name};
use crate::quantity::{Milli, milli};
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements, Taint, Toleration,
};
use kube::ResourceExt;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use steersman::Key;

/// Amounts by resource name, in thousandths.
type Amounts = BTreeMap<String, Milli>;

/// Where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Onto this node.
    Bind(String),
    /// Nowhere yet, for these reasons.
    Wait(String),
}

/// What the pods on each node ask for, kept up to date pod by pod.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pods: HashMap<Key, (String, Amounts)>,
    nodes: HashMap<String, Taken>,
}

/// What is taken of a node.
#[derive(Clone, Debug, Default)]
struct Taken {
    amounts: Amounts,
    pods: i64,
}

impl Ledger {
    /// Takes in where a pod is now; one that has finished takes nothing.
    pub(super) fn record(&mut self, key: &Key, pod: &Pod) {
        match node_name(pod).filter(|_| !is_terminal(pod)) {
            Some(node) => self.assign(key, pod, node),
            None => self.forget(key),
        }
    }

    /// Takes in that a pod goes to a node, before the cache knows.
    pub(super) fn assign(&mut self, key: &Key, pod: &Pod, node: &str) {
        self.forget(key);
        let amounts = pod.spec.as_ref().map(requests).unwrap_or_default();
        let taken = self.nodes.entry(node.to_owned()).or_default();
        taken.pods += 1;
        for (name, amount) in &amounts {
            *taken.amounts.entry(name.clone()).or_default() += *amount;
        }
        self.pods.insert(key.clone(), (node.to_owned(), amounts));
    }

    /// Takes in that a pod is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        let Some((node, amounts)) = self.pods.remove(key) else { return };
        let Some(taken) = self.nodes.get_mut(&node) else { return };
        taken.pods -= 1;
        for (name, Milli(amount)) in amounts {
            *taken.amounts.entry(name).or_default() += Milli(-amount);
        }
        if taken.pods == 0 {
            self.nodes.remove(&node);
        }
    }
}

/// Chooses a node for a pod: of those that fit the one with the most room left, so that pods
/// spread.
pub(super) fn decide(pod: &Pod, nodes: &[Arc<Node>], ledger: &Ledger) -> Decision {
    let spec = pod.spec.clone().unwrap_or_default();
    let wanted = requests(&spec);
    let nothing = Taken::default();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(i64, String)> = None;
    for node in nodes {
        let name = node.name_any();
        let taken = ledger.nodes.get(&name).unwrap_or(&nothing);
        match unfit(&spec, &wanted, node, taken) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None => {
                let room = room(node, taken);
                if best.as_ref().is_none_or(|(most, _)| room > *most) {
                    best = Some((room, name));
                }
            }
        }
    }
    match best {
        Some((_, node)) => Decision::Bind(node),
        None => Decision::Wait(explain(nodes.len(), &reasons)),
    }
}

fn explain(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".into();
    }
    let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// Why a pod does not fit on a node; none when it does.
fn unfit(spec: &PodSpec, wanted: &Amounts, node: &Node, taken: &Taken) -> Option<String> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let node_spec = node.spec.as_ref();
    if node_spec.and_then(|spec| spec.unschedulable) == Some(true) {
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        if !tolerations.iter().any(|toleration| tolerates(toleration, &taint)) {
            return Some("node(s) were unschedulable".into());
        }
    }
    if !matches_selector(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".into());
    }
    let taints = node_spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let hard = taints.iter().filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    if let Some(taint) =
        hard.into_iter().find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(format!("node(s) had untolerated taint(s) {{{}: {value}}}", taint.key));
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let capacity = |name: &str| allocatable.and_then(|all| all.get(name)).and_then(milli);
    if capacity("pods").is_some_and(|Milli(most)| i128::from(taken.pods + 1) * 1_000 > most) {
        return Some("Too many pods".into());
    }
    for (name, Milli(amount)) in wanted.iter().filter(|(_, Milli(amount))| *amount > 0) {
        let Milli(used) = taken.amounts.get(name).copied().unwrap_or_default();
        // A node that says nothing of CPU and memory is taken at its word: it does not count them.
        let most = match capacity(name) {
            Some(Milli(most)) => most,
            None if name == "cpu" || name == "memory" || name == "ephemeral-storage" => continue,
            None => 0,
        };
        if used.saturating_add(*amount) > most {
            return Some(format!("Insufficient {name}"));
        }
    }
    None
}

/// The share of CPU and memory that is left on a node, per mille, for choosing between nodes.
fn room(node: &Node, taken: &Taken) -> i64 {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let left = ["cpu", "memory"].iter().map(|name| {
        let most = allocatable.and_then(|all| all.get(*name)).and_then(milli).map_or(0, |amount| amount.0);
        let used = taken.amounts.get(*name).map_or(0, |amount| amount.0);
        if most <= 0 { 0 } else { i64::try_from((most - used).max(0) * 1_000 / most).unwrap_or(0) }
    });
    // Pods without requests would all go to one node otherwise.
    left.sum::<i64>() * 1_000 - taken.pods
}

/// What a pod asks for: its containers together, or its greediest init container.
fn requests(spec: &PodSpec) -> Amounts {
    let asked = |resources: Option<&ResourceRequirements>| -> Amounts {
        let resources = resources.cloned().unwrap_or_default();
        // A limit without a request is a request.
        let mut amounts = resources.limits.unwrap_or_default();
        amounts.extend(resources.requests.unwrap_or_default());
        amounts.iter().filter_map(|(name, quantity)| Some((name.clone(), milli(quantity)?))).collect()
    };
    let mut total = Amounts::new();
    for container in &spec.containers {
        for (name, amount) in asked(container.resources.as_ref()) {
            *total.entry(name).or_default() += amount;
        }
    }
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in asked(container.resources.as_ref()) {
            if sidecar {
                *total.entry(name).or_default() += amount;
            } else {
                let most = peak.entry(name).or_default();
                *most = (*most).max(amount);
            }
        }
    }
    for (name, amount) in peak {
        let most = total.entry(name).or_default();
        *most = (*most).max(amount);
    }
    for (name, quantity) in spec.overhead.iter().flatten() {
        if let Some(amount) = milli(quantity) {
            *total.entry(name.clone()).or_default() += amount;
        }
    }
    total
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let blank = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    let effect = blank(&toleration.effect) || toleration.effect.as_ref() == Some(&taint.effect);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = if blank(&toleration.key) { exists } else { toleration.key.as_ref() == Some(&taint.key) };
    let value = exists
        || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect && key && value
}

fn matches_selector(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let selector = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selector
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// A term matches when all of it does; an empty term matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.labels();
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.name_any();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions
            .iter()
            .all(|wanted| matches_requirement(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields.iter().all(|wanted| {
            let value = (wanted.key == "metadata.name").then_some(name.as_str());
            matches_requirement(wanted, value)
        })
}

fn matches_requirement(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let number = value.and_then(|value| value.parse().ok());
        let bound = values.first().and_then(|value| value.parse().ok());
        number.zip(bound).is_some_and(|(number, bound)| holds(number, bound))
    };
    match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|number, bound| number > bound),
        "Lt" => compare(|number, bound| number < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Node> {
        let mut value = json!({
            "metadata": {"name": name, "labels": {"disk": "ssd", "cores": "8"}}, "spec": {},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}}
        });
        change(&mut value);
        Arc::new(serde_json::from_value(value).expect("a node"))
    }

    fn pod(spec: &Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        if let (Some(target), Some(fields)) = (value["spec"].as_object_mut(), spec.as_object()) {
            target.extend(fields.clone());
        }
        serde_json::from_value(value).expect("a pod")
    }

    fn cpu(amount: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]})
    }

    fn on(node: &str, spec: &Value) -> Arc<Pod> {
        let mut pod = pod(spec);
        pod.spec.get_or_insert_default().node_name = Some(node.into());
        Arc::new(pod)
    }

    fn ledger(bound: &[Arc<Pod>]) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, pod) in bound.iter().enumerate() {
            ledger.record(&Key::new("n", &number.to_string()), pod);
        }
        ledger
    }

    fn reason(pod: &Pod, nodes: &[Arc<Node>], bound: &[Arc<Pod>]) -> String {
        match decide(pod, nodes, &ledger(bound)) {
            Decision::Bind(node) => format!("bound to {node}"),
            Decision::Wait(reason) => reason,
        }
    }

    #[test]
    fn a_plain_pod_goes_to_the_only_node() {
        assert_eq!(
            decide(&pod(&json!({})), &[node("a", |_| {})], &Ledger::default()),
            Decision::Bind("a".into())
        );
    }

    #[test]
    fn without_nodes_a_pod_waits_and_says_so() {
        assert_eq!(reason(&pod(&json!({})), &[], &[]), "no nodes available to schedule pods");
    }

    #[test]
    fn selector_and_affinity_choose_nodes() {
        let nodes = [node("a", |_| {})];
        let affinity = |expressions: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
        };
        let cases = [
            (json!({"nodeSelector": {"disk": "ssd"}}), true),
            (json!({"nodeSelector": {"disk": "hdd"}}), false),
            (affinity(json!([{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}])), true),
            (affinity(json!([{"key": "disk", "operator": "NotIn", "values": ["ssd"]}])), false),
            (affinity(json!([{"key": "gpu", "operator": "Exists"}])), false),
            (affinity(json!([{"key": "cores", "operator": "Gt", "values": ["4"]}])), true),
            (affinity(json!([])), false),
        ];
        for (spec, fits) in cases {
            let found = reason(&pod(&spec), &nodes, &[]);
            let expected = if fits {
                "bound to a"
            } else {
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
            };
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn taints_keep_pods_away_unless_tolerated() {
        let tainted = [node("a", |node| {
            node["spec"]["taints"] = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"},
                {"key": "soft", "effect": "PreferNoSchedule"}]);
        })];
        let expected = "0/1 nodes are available: 1 node(s) had untolerated taint(s) {dedicated: db}.";
        assert_eq!(reason(&pod(&json!({})), &tainted, &[]), expected);
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "dedicated", "operator": "Exists"}),
            json!({"key": "dedicated", "value": "db", "effect": "NoSchedule"}),
        ] {
            let pod = pod(&json!({"tolerations": [toleration]}));
            assert_eq!(reason(&pod, &tainted, &[]), "bound to a");
        }
        let wrong = pod(&json!({"tolerations": [{"key": "dedicated", "value": "web"}]}));
        assert_eq!(reason(&wrong, &tainted, &[]), expected);
    }

    #[test]
    fn a_cordoned_node_takes_no_pods() {
        let cordoned = [node("a", |node| node["spec"]["unschedulable"] = true.into())];
        let expected = "0/1 nodes are available: 1 node(s) were unschedulable.";
        assert_eq!(reason(&pod(&json!({})), &cordoned, &[]), expected);
    }

    #[test]
    fn pods_fit_within_what_the_node_has_left() {
        let nodes = [node("a", |_| {})];
        assert_eq!(reason(&pod(&cpu("2")), &nodes, &[]), "bound to a");
        let full = [on("a", &cpu("1500m"))];
        let expected = "0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(reason(&pod(&cpu("501m")), &nodes, &full), expected);
        assert_eq!(reason(&pod(&cpu("500m")), &nodes, &full), "bound to a");
        let crowd = [on("a", &json!({})), on("a", &json!({})), on("a", &json!({}))];
        assert_eq!(reason(&pod(&json!({})), &nodes, &crowd), "0/1 nodes are available: 1 Too many pods.");
        let limits = pod(&json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "2Gi"}}}]}));
        assert_eq!(reason(&limits, &nodes, &[]), "0/1 nodes are available: 1 Insufficient memory.");
        let gpu = pod(&json!({"containers": [{"name": "c", "resources": {"limits": {"x.io/gpu": "1"}}}]}));
        assert_eq!(reason(&gpu, &nodes, &[]), "0/1 nodes are available: 1 Insufficient x.io/gpu.");
    }

    #[test]
    fn the_greediest_init_container_counts_not_their_sum() {
        let spec = json!({"initContainers": [
            {"name": "x", "resources": {"requests": {"cpu": "2"}}},
            {"name": "y", "resources": {"requests": {"cpu": "1"}}}]});
        assert_eq!(reason(&pod(&spec), &[node("a", |_| {})], &[]), "bound to a");
    }

    #[test]
    fn pods_spread_over_equal_nodes() {
        let nodes = [node("a", |_| {}), node("b", |_| {})];
        assert_eq!(reason(&pod(&json!({})), &nodes, &[on("a", &json!({}))]), "bound to b");
    }

    #[test]
    fn every_reason_is_counted() {
        let nodes = [
            node("a", |node| node["spec"]["unschedulable"] = true.into()),
            node("b", |node| node["metadata"]["labels"] = json!({})),
            node("c", |node| node["metadata"]["labels"] = json!({})),
        ];
        let found = reason(&pod(&json!({"nodeSelector": {"disk": "ssd"}})), &nodes, &[]);
        assert_eq!(
            found,
            "0/3 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, \
             1 node(s) were unschedulable."
        );
    }

    #[test]
    fn the_ledger_gives_back_what_a_pod_took() {
        let mut ledger = Ledger::default();
        let key = Key::new("n", "p");
        let big = on("a", &cpu("2"));
        ledger.record(&key, &big);
        ledger.record(&key, &big);
        let nodes = [node("a", |_| {})];
        assert!(matches!(decide(&pod(&cpu("1")), &nodes, &ledger), Decision::Wait(_)));
        let mut finished = (*big).clone();
        finished.status.get_or_insert_default().phase = Some("Succeeded".into());
        ledger.record(&key, &finished);
        assert_eq!(decide(&pod(&cpu("2")), &nodes, &ledger), Decision::Bind("a".into()));
        assert!(ledger.nodes.is_empty());
    }
}
