//! Pods: the one table everybody knows by heart.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::column::{BuiltIn, Cell, age, column, has_condition, list, name, since, text, wide};
use crate::types::Resource;

pub(super) static COLUMNS: &[BuiltIn] = &[
    name(),
    column("Ready", "string", Cell::Code(|pod| Summary::of(pod).ready().into())),
    column("Status", "string", Cell::Code(|pod| Summary::of(pod).reason.into())),
    column("Restarts", "string", Cell::Timed(|pod, now| Summary::of(pod).restarts(now).into())),
    age(),
    wide("IP", Cell::TextOr("/status/podIPs/0/ip", "<none>")),
    wide("Node", Cell::TextOr("/spec/nodeName", "<none>")),
    wide("Nominated Node", Cell::TextOr("/status/nominatedNodeName", "<none>")),
    wide("Readiness Gates", Cell::Code(readiness_gates)),
];

/// What the row of a pod says about its end.
pub(super) fn conditions(resource: &Resource, object: &Value) -> Option<Value> {
    if &*resource.storage.name != "pods" {
        return None;
    }
    let (reason, message) = match object["status"]["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// What is told of a pod in one line.
struct Summary<'a> {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let phase = text(pod, "/status/phase");
        let mut summary = Self {
            ready: 0,
            total: list(pod, "/spec/containers").count()
                + list(pod, "/spec/initContainers").filter(is_sidecar).count(),
            reason: phase.clone(),
            restarts: 0,
            last_restart: None,
        };
        let status_reason = text(pod, "/status/reason");
        if !status_reason.is_empty() {
            summary.reason.clone_from(&status_reason);
        }
        if list(pod, "/status/conditions").any(|condition| condition["reason"] == "SchedulingGated") {
            summary.reason = "SchedulingGated".to_owned();
        }
        let initializing = summary.add_init_containers(pod);
        if !initializing || has_condition(pod, "Initialized", "True") {
            summary.add_containers(pod);
        }
        let deleted = !pod["metadata"]["deletionTimestamp"].is_null();
        if deleted && status_reason == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if deleted && phase != "Succeeded" && phase != "Failed" {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Looks at the init containers up to the first that is not done; tells whether there is one.
    fn add_init_containers(&mut self, pod: &'a Value) -> bool {
        let specs: Vec<&Value> = list(pod, "/spec/initContainers").collect();
        for (at, container) in list(pod, "/status/initContainerStatuses").enumerate() {
            self.add_restarts(container);
            let sidecar = specs.iter().any(|spec| spec["name"] == container["name"] && is_sidecar(spec));
            let terminated = &container["state"]["terminated"];
            let waiting = text(container, "/state/waiting/reason");
            if terminated["exitCode"] == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.reason = if !terminated.is_null() {
                format!("Init:{}", end_of(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{at}/{}", specs.len())
            };
            return true;
        }
        false
    }

    fn add_containers(&mut self, pod: &'a Value) {
        // Restarts of init containers are forgotten once they are through, those of sidecars are not.
        self.restarts = 0;
        self.last_restart = None;
        let sidecars: Vec<&Value> = list(pod, "/spec/initContainers").filter(is_sidecar).collect();
        for container in list(pod, "/status/initContainerStatuses") {
            if sidecars.iter().any(|spec| spec["name"] == container["name"]) {
                self.add_restarts(container);
            }
        }
        let (mut running, mut failure) = (false, None);
        for container in list(pod, "/status/containerStatuses").rev() {
            self.add_restarts(container);
            let terminated = &container["state"]["terminated"];
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting;
            } else if !terminated.is_null() {
                self.reason = end_of(terminated);
                if terminated["exitCode"] != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && !container["state"]["running"].is_null() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && has_condition(pod, "Ready", "True") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }

    fn add_restarts(&mut self, container: &'a Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or_default();
        let finished = container.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
        self.last_restart = self.last_restart.max(finished);
    }

    fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart.filter(|_| self.restarts != 0) {
            Some(time) => format!("{} ({} ago)", self.restarts, since(Some(&time.into()), now)),
            None => self.restarts.to_string(),
        }
    }
}

fn is_sidecar(container: &&Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// How a container ended, in one word.
fn end_of(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    if !reason.is_empty() {
        return reason;
    }
    match terminated["signal"].as_i64().unwrap_or_default() {
        0 => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or_default()),
        signal => format!("Signal:{signal}"),
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates: Vec<&Value> = list(pod, "/spec/readinessGates").collect();
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .iter()
        .filter(|gate| has_condition(pod, gate["conditionType"].as_str().unwrap_or_default(), "True"));
    format!("{}/{}", open.count(), gates.len()).into()
}
