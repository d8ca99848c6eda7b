//! What only pods have: binding, eviction, and where their logs are.

use serde_json::{Value, json};

use super::{
    Call, DeleteOptions, Engine, Outcome,
    create::Ownership,
    meta::{Meta, object_mut, time_text},
    update::{Shown, Side, Unconditional, Wanted},
    view,
};
use crate::{
    admit::webhook::Kind,
    object::Key,
    schema::FieldError,
    status::{self, Failure},
};

impl Engine {
    /// `POST pods/<name>/binding`, and `POST bindings`: gives a pod to a node.
    pub(crate) async fn bind(&self, call: &Call<'_>, binding: &Value) -> Result<Outcome, Failure> {
        let binding = &self.admit_sent(call, "binding", Kind::new("", "v1", "Binding"), binding).await?;
        let target = &binding["target"];
        let node = target["name"].as_str().unwrap_or_default();
        if node.is_empty() || !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
            let error = if node.is_empty() {
                FieldError::required("target.name", "")
            } else {
                FieldError::not_supported("target.kind", target["kind"].clone(), &["Node", "<empty>"])
            };
            return Err(Failure::invalid("", "Binding", call.name, &[error]));
        }
        let now = time_text((self.options.clock)());
        self.change(call, Side::Other("binding"), Unconditional::Fine, Shown::Nothing, |live, _| {
            if !binding.uid().is_empty() && binding.uid() != live.uid() {
                let why = format!(
                    "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                    binding.uid(),
                    live.uid()
                );
                return Err(Failure::conflict(call.resource, call.name, &why));
            }
            if live.is_deleting() {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", call.name);
                return Err(Failure::conflict(call.resource, call.name, &why));
            }
            if let Some(current) = live["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let why = format!("pod {} is already assigned to node {current:?}", call.name);
                return Err(Failure::conflict(call.resource, call.name, &why));
            }
            let mut object = live.clone();
            object["spec"]["nodeName"] = node.into();
            let annotations = binding["metadata"]["annotations"].as_object();
            for (key, value) in annotations.into_iter().flatten().filter(|(_, value)| value.is_string()) {
                object["metadata"]["annotations"][key] = value.clone();
            }
            scheduled(&mut object, &now);
            Ok(Wanted { object, ownership: Ownership::Applied })
        })
        .await?;
        Ok(Outcome::plain(201, status::created()))
    }

    /// `POST pods/<name>/eviction`: deletes the pod as its disruption budget allows.
    pub(crate) async fn evict(&self, call: &Call<'_>, eviction: &Value) -> Result<Outcome, Failure> {
        let kind = Kind::new("policy", "v1", "Eviction");
        let eviction = &self.admit_sent(call, "eviction", kind, eviction).await?;
        let body = eviction.get("deleteOptions").filter(|options| !options.is_null());
        let options = DeleteOptions::parse(body, call.query)?;
        let stored = self.stored(call.resource, call.object_namespace(), call.name)?;
        self.check_budgets(&stored.key, &view::tree(&stored))?;
        self.delete(call, &options).await?;
        Ok(Outcome::plain(201, status::created()))
    }

    /// Refuses an eviction while a budget that covers the pod allows none.
    fn check_budgets(&self, key: &Key, pod: &Value) -> Result<(), Failure> {
        for stored in self.store.list("policy/poddisruptionbudgets", Some(&key.namespace)).iter() {
            let budget = view::tree(stored);
            if !crate::selector::object_matches(&budget["spec"]["selector"], &pod["metadata"]["labels"]) {
                continue;
            }
            if budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0
                && pod["status"]["phase"] == "Running"
            {
                return Err(Failure::too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                )
                .with_cause(
                    "DisruptionBudget",
                    format!(
                        "The disruption budget {} does not allow evicting pods currently",
                        stored.key.name
                    ),
                    "",
                ));
            }
        }
        Ok(())
    }
}

/// Says in the pod's status that it has a node now.
fn scheduled(object: &mut Value, now: &str) {
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let status = object_mut(object_mut(object).entry("status").or_insert_with(super::meta::empty));
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(list) = conditions.as_array_mut() {
        list.retain(|condition| condition["type"] != "PodScheduled");
        list.push(condition);
    }
}

/// Where the logs of a container are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogTarget {
    /// The node that has them.
    pub(crate) node: String,
    /// The container.
    pub(crate) container: String,
}

/// Finds the container whose logs are asked for.
pub(crate) fn log_target(pod: &Value, asked: Option<&str>) -> Result<LogTarget, Failure> {
    let names = |list: &str| -> Vec<&str> {
        pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|container| container["name"].as_str())
            .collect()
    };
    let (main, init, ephemeral) =
        (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let name = pod.name();
    let container = match asked {
        Some(asked) if main.contains(&asked) || init.contains(&asked) || ephemeral.contains(&asked) => asked,
        Some(asked) => {
            return Err(Failure::bad_request(format!("container {asked} is not valid for pod {name}")));
        }
        None => match main.as_slice() {
            [] => {
                return Err(Failure::bad_request(format!(
                    "a container name must be specified for pod {name}"
                )));
            }
            [only] => only,
            several => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                );
                for (list, what) in [(&init, "init"), (&ephemeral, "ephemeral")] {
                    if !list.is_empty() {
                        message.push_str(&format!(" or one of the {what} containers: [{}]", list.join(" ")));
                    }
                }
                return Err(Failure::bad_request(message));
            }
        },
    };
    Ok(LogTarget {
        node: pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
        container: container.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_of_a_log_is_chosen_as_kubernetes_does() {
        let pod = |names: &[&str]| {
            let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": containers}})
        };
        let found = |pod: &Value, asked| {
            log_target(pod, asked).map(|target| target.container).map_err(|failure| failure.message)
        };
        assert_eq!(found(&pod(&["a"]), None), Ok("a".to_owned()));
        assert_eq!(found(&pod(&["a", "b"]), Some("b")), Ok("b".to_owned()));
        assert_eq!(
            found(&pod(&["a", "b"]), None),
            Err("a container name must be specified for pod p, choose one of: [a b]".to_owned())
        );
        assert_eq!(found(&pod(&["a"]), Some("x")), Err("container x is not valid for pod p".to_owned()));
    }
}
