//! LimitRanges: what containers get that ask for nothing, and how much anything may ask for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::quantity::{Notation, Quantity};
use crate::{
    engine::{Call, Engine, meta::Meta, view},
    status::Failure,
    types::Origin,
};

/// Amounts by the name of the resource.
type Amounts = BTreeMap<String, Amount>;

/// An amount, and how it is written.
#[derive(Debug, Clone, PartialEq)]
struct Amount {
    quantity: Quantity,
    text: String,
}

/// Gives a new pod's containers what the namespace's LimitRanges say by default.
pub(crate) fn set_defaults(engine: &Engine, pod: &mut Value) {
    for range in ranges(engine, pod.namespace()) {
        let said = default_resources(&range, pod);
        if !said.is_empty() {
            let text = format!("LimitRanger plugin set: {}", said.join("; "));
            pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = text.into();
        }
    }
}

/// Refuses a new pod or claim that asks for more, or less, than the LimitRanges of its namespace allow.
pub(crate) fn check(engine: &Engine, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
    if call.resource.origin != Origin::BuiltIn || !call.resource.group.is_empty() {
        return Ok(());
    }
    let broken: fn(&Value, &Value) -> Vec<String> = match &*call.resource.plural {
        "pods" => broken_by_pod,
        "persistentvolumeclaims" => broken_by_claim,
        _ => return Ok(()),
    };
    for range in ranges(engine, object.namespace()) {
        let broken = broken(&range, object);
        let why = match broken.as_slice() {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Failure::forbidden(call.resource, object.name(), &why));
    }
    Ok(())
}

/// The LimitRanges of a namespace.
fn ranges(engine: &Engine, namespace: &str) -> Vec<Value> {
    engine.store.list("limitranges", Some(namespace)).iter().map(|stored| view::tree(stored)).collect()
}

/// The limits of a LimitRange that are of one type.
fn limits<'r>(range: &'r Value, kind: &'static str) -> impl Iterator<Item = &'r Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |limit| limit["type"] == kind)
}

/// Fills in what containers leave open; says what was filled in.
fn default_resources(range: &Value, pod: &mut Value) -> Vec<String> {
    let mut said = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (from, to, word) in
                [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
            {
                let mut set = BTreeSet::new();
                // The last limit of a type wins.
                let amounts: Map<String, Value> = limits(range, "Container")
                    .filter_map(|limit| limit[from].as_object())
                    .flat_map(|amounts| amounts.clone())
                    .collect();
                for (resource, amount) in amounts {
                    let given = &mut container["resources"][to];
                    if given.is_null() {
                        *given = json!({});
                    }
                    if let Some(given) = given.as_object_mut().filter(|given| !given.contains_key(&resource))
                    {
                        given.insert(resource.clone(), amount);
                        set.insert(resource);
                    }
                }
                if !set.is_empty() {
                    let names: Vec<String> = set.into_iter().collect();
                    said.push(format!("{} {word} for {what} {name}", names.join(", ")));
                }
            }
        }
    }
    said
}

fn broken_by_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in pod["spec"][list].as_array().into_iter().flatten() {
                        let of = |list: &str| amounts(&container["resources"][list]);
                        broken.extend(broken_limits(limit, "Container", &of("requests"), &of("limits")));
                    }
                }
            }
            Some("Pod") => {
                let of = |list: &str| total(&pod["spec"], list);
                broken.extend(broken_limits(limit, "Pod", &of("requests"), &of("limits")));
            }
            _ => {}
        }
    }
    broken
}

fn broken_limits(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut broken = Vec::new();
    for (resource, least) in amounts(&limit["min"]) {
        broken.extend(too_little(kind, &resource, &least, requests.get(&resource), limits.get(&resource)));
    }
    for (resource, most) in amounts(&limit["max"]) {
        broken.extend(too_much(kind, &resource, &most, requests.get(&resource), limits.get(&resource)));
    }
    for (resource, most) in amounts(&limit["maxLimitRequestRatio"]) {
        broken.extend(too_far(kind, &resource, &most, requests.get(&resource), limits.get(&resource)));
    }
    broken
}

fn broken_by_claim(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    let mut broken = Vec::new();
    for limit in limits(range, KIND) {
        for (resource, least) in amounts(&limit["min"]) {
            broken.extend(too_little(KIND, &resource, &least, requests.get(&resource), None));
        }
        for (resource, most) in amounts(&limit["max"]) {
            broken.extend(too_much_requested(KIND, &resource, &most, requests.get(&resource)));
        }
    }
    broken
}

fn too_little(
    kind: &str,
    resource: &str,
    least: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let rule = format!("minimum {resource} usage per {kind} is {}", least.text);
    match (request, limit) {
        (None, _) => Some(format!("{rule}.  No request is specified")),
        (Some(request), _) if request.quantity < least.quantity => {
            Some(format!("{rule}, but request is {}", request.text))
        }
        (_, Some(limit)) if limit.quantity < least.quantity => {
            Some(format!("{rule}, but limit is {}", limit.text))
        }
        _ => None,
    }
}

fn too_much(
    kind: &str,
    resource: &str,
    most: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let rule = format!("maximum {resource} usage per {kind} is {}", most.text);
    match (request, limit) {
        (_, None) => Some(format!("{rule}.  No limit is specified")),
        (_, Some(limit)) if limit.quantity > most.quantity => {
            Some(format!("{rule}, but limit is {}", limit.text))
        }
        (Some(request), _) if request.quantity > most.quantity => {
            Some(format!("{rule}, but request is {}", request.text))
        }
        _ => None,
    }
}

/// As [`too_much`], for what has no limits.
fn too_much_requested(kind: &str, resource: &str, most: &Amount, request: Option<&Amount>) -> Option<String> {
    let rule = format!("maximum {resource} usage per {kind} is {}", most.text);
    match request {
        None => Some(format!("{rule}.  No request is specified")),
        Some(request) if request.quantity > most.quantity => {
            Some(format!("{rule}, but request is {}", request.text))
        }
        Some(_) => None,
    }
}

/// The limit may be only so many times the request.
fn too_far(
    kind: &str,
    resource: &str,
    most: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let rule = format!("{resource} max limit to request ratio per {kind} is {}", most.text);
    let some = |amount: Option<&Amount>| {
        amount.map(|amount| amount.quantity.approximate()).filter(|amount| *amount != 0.0)
    };
    let Some(request) = some(request) else {
        return Some(format!("{rule}, but no request is specified or request is 0"));
    };
    let Some(limit) = some(limit) else {
        return Some(format!("{rule}, but no limit is specified or limit is 0"));
    };
    let ratio = limit / request;
    (ratio > most.quantity.approximate()).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
}

fn amounts(list: &Value) -> Amounts {
    let amount = |(name, text): (&String, &Value)| {
        let text = text.as_str()?;
        Some((name.clone(), Amount { quantity: Quantity::parse(text)?, text: text.to_owned() }))
    };
    list.as_object().into_iter().flatten().filter_map(amount).collect()
}

/// What all containers of a pod take together: the sum of those that run side by side, or what an init
/// container takes beside the restartable ones before it, where that is more.
fn total(spec: &Value, list: &str) -> Amounts {
    let each = |containers: &str| spec[containers].as_array().cloned().unwrap_or_default();
    let mut sum = Amounts::new();
    for container in each("containers") {
        add(&mut sum, &amounts(&container["resources"][list]));
    }
    let (mut restartable, mut most) = (Amounts::new(), Amounts::new());
    for container in each("initContainers") {
        let taken = amounts(&container["resources"][list]);
        let mut beside = restartable.clone();
        add(&mut beside, &taken);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &taken);
            restartable.clone_from(&beside);
        }
        raise(&mut most, beside);
    }
    raise(&mut sum, most);
    for (resource, amount) in amounts(&spec["resources"][list]) {
        if matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-") {
            sum.insert(resource, amount);
        }
    }
    sum
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        match sum.get_mut(resource) {
            None => {
                sum.insert(resource.clone(), amount.clone());
            }
            Some(sum) => {
                let binary = sum.text.ends_with('i');
                sum.quantity = sum.quantity.plus(amount.quantity);
                sum.text = sum.quantity.text(if binary { Notation::Binary } else { Notation::Decimal });
            }
        }
    }
}

fn raise(most: &mut Amounts, others: Amounts) {
    for (resource, amount) in others {
        if most.get(&resource).is_none_or(|known| known.quantity < amount.quantity) {
            most.insert(resource, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limit: &Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    fn container(requests: &Value, limits: &Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn containers_get_what_they_leave_open_and_keep_what_they_say() {
        let range = range(&json!({"type": "Container", "default": {"cpu": "2", "memory": "1Gi"},
            "defaultRequest": {"cpu": "1"}}));
        let mut pod = json!({"spec": {"containers": [{"name": "a"}, container(&json!({"cpu": "3"}), &json!({"cpu": "4"}))],
            "initContainers": [{"name": "i", "resources": {}}]}});
        let said = default_resources(&range, &mut pod);
        assert_eq!(
            said,
            [
                "cpu request for container a",
                "cpu, memory limit for container a",
                "memory limit for container c",
                "cpu request for init container i",
                "cpu, memory limit for init container i",
            ]
        );
        let resources = |list: &str, at: usize| pod["spec"][list][at]["resources"].clone();
        let filled = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(resources("containers", 0), filled);
        assert_eq!(resources("initContainers", 0), filled);
        let kept = json!({"requests": {"cpu": "3"}, "limits": {"cpu": "4", "memory": "1Gi"}});
        assert_eq!(resources("containers", 1), kept);
    }

    #[test]
    fn a_container_may_ask_for_neither_too_much_nor_too_little() {
        let range = range(&json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"},
            "maxLimitRequestRatio": {"cpu": "2"}}));
        for (requests, limits, expected) in [
            (json!({"cpu": "500m"}), json!({"cpu": "1"}), vec![]),
            (
                json!({"cpu": "50m"}),
                json!({"cpu": "75m"}),
                vec!["minimum cpu usage per Container is 100m, but request is 50m"],
            ),
            (
                json!({"cpu": "1500m"}),
                json!({"cpu": "2"}),
                vec!["maximum cpu usage per Container is 1, but limit is 2"],
            ),
            (
                json!({"cpu": "200m"}),
                json!({"cpu": "1"}),
                vec!["cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000"],
            ),
            (
                json!({}),
                json!({}),
                vec![
                    "minimum cpu usage per Container is 100m.  No request is specified",
                    "maximum cpu usage per Container is 1.  No limit is specified",
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ],
            ),
        ] {
            let pod = json!({"spec": {"containers": [container(&requests, &limits)]}});
            assert_eq!(broken_by_pod(&range, &pod), expected, "{pod}");
        }
    }

    #[test]
    fn a_pod_is_all_its_containers_together() {
        let range = range(&json!({"type": "Pod", "max": {"memory": "1Gi"}}));
        let half = || container(&json!({}), &json!({"memory": "512Mi"}));
        let pod = json!({"spec": {"containers": [half(), half()]}});
        assert!(broken_by_pod(&range, &pod).is_empty());
        let mut sidecar = container(&json!({}), &json!({"memory": "1Mi"}));
        sidecar["restartPolicy"] = "Always".into();
        let pod = json!({"spec": {"containers": [half(), half()], "initContainers": [sidecar]}});
        assert_eq!(broken_by_pod(&range, &pod), ["maximum memory usage per Pod is 1Gi, but limit is 1025Mi"]);
        let init = container(&json!({}), &json!({"memory": "2Gi"}));
        let pod = json!({"spec": {"containers": [half()], "initContainers": [init]}});
        assert_eq!(broken_by_pod(&range, &pod), ["maximum memory usage per Pod is 1Gi, but limit is 2Gi"]);
    }

    #[test]
    fn a_claim_is_held_to_its_request() {
        let range = range(
            &json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}),
        );
        for (asked, expected) in [
            ("1Gi", None),
            ("500Mi", Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi")),
            ("3Gi", Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")),
        ] {
            let claim = json!({"spec": {"resources": {"requests": {"storage": asked}}}});
            assert_eq!(broken_by_claim(&range, &claim).first().map(String::as_str), expected, "{asked}");
        }
    }
}
