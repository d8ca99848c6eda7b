//! The Node object and its Lease.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::options::{Clock, NodeOptions};
use crate::runtime::RuntimeKind;

/// How often the Lease is renewed; a quarter of what it is good for, as the kubelet does.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// How often the Node's status is written when nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(300);
const LEASES: &str = "kube-node-lease";

/// What the node says of itself.
#[derive(Clone)]
pub(crate) struct Registration {
    client: kube::Client,
    name: String,
    kubelet: SocketAddr,
    runtime: RuntimeKind,
    size: (u64, u64),
    max_pods: u32,
    clock: Clock,
}

impl Registration {
    pub(crate) fn new(
        client: kube::Client,
        options: &NodeOptions,
        kubelet: SocketAddr,
        runtime: RuntimeKind,
        size: (u64, u64),
    ) -> Self {
        Registration {
            client,
            name: options.name.clone(),
            kubelet,
            runtime,
            size,
            max_pods: options.max_pods,
            clock: options.clock.clone(),
        }
    }

    /// Creates the Node or takes over the one of that name, and says that it is ready.
    pub(crate) async fn register(&self) -> Result<(), kube::Error> {
        let api: Api<ApiNode> = Api::all(self.client.clone());
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some(self.labels()),
            ..ObjectMeta::default()
        };
        let node = ApiNode { metadata, ..ApiNode::default() };
        match api.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                let labels = json!({"metadata": {"labels": self.labels()}});
                api.patch(&self.name, &PatchParams::default(), &Patch::Merge(labels)).await?;
            }
            Err(error) => return Err(error),
        }
        self.write_status().await
    }

    fn labels(&self) -> std::collections::BTreeMap<String, String> {
        [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture()),
            ("steersman.io/runtime", self.runtime.name()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
    }

    async fn write_status(&self) -> Result<(), kube::Error> {
        let api: Api<ApiNode> = Api::all(self.client.clone());
        let before = api.get(&self.name).await?;
        let patch = Patch::Strategic(json!({"status": self.status(&before)}));
        api.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn status(&self, before: &ApiNode) -> Value {
        let (cores, memory) = self.size;
        let resources = json!({
            "cpu": cores.to_string(),
            "memory": format!("{}Ki", memory / 1024),
            "ephemeral-storage": "0",
            "pods": self.max_pods.to_string(),
        });
        let release = nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        json!({
            "addresses": [
                {"type": "InternalIP", "address": self.kubelet.ip().to_string()},
                {"type": "Hostname", "address": self.name},
            ],
            "capacity": resources,
            "allocatable": resources,
            "conditions": self.conditions(before),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port()}},
            "nodeInfo": {
                "architecture": architecture(),
                "bootID": read("/proc/sys/kernel/random/boot_id"),
                "containerRuntimeVersion": format!("steersman://{}", self.runtime.name()),
                "kernelVersion": release,
                "kubeProxyVersion": version(),
                "kubeletVersion": version(),
                "machineID": read("/etc/machine-id"),
                "operatingSystem": "linux",
                "osImage": os_name(),
                "systemUUID": read("/etc/machine-id"),
            },
        })
    }

    fn conditions(&self, before: &ApiNode) -> Vec<Value> {
        let now = Time((self.clock)());
        let known = before.status.as_ref().and_then(|status| status.conditions.as_deref());
        [
            (
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let since = known
                .into_iter()
                .flatten()
                .find(|one| one.type_ == kind && one.status == status)
                .and_then(|one| one.last_transition_time.clone())
                .unwrap_or_else(|| now.clone());
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            })
        })
        .collect()
    }

    /// Renews the Lease, and now and then the status, until it is dropped.
    pub(crate) async fn keep(self) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        heartbeat.tick().await;
        let mut renew = tokio::time::interval(RENEW);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                _ = renew.tick() => self.renew().await,
                // A Node that someone deleted comes back with its next heartbeat.
                _ = heartbeat.tick() => match self.write_status().await {
                    Err(kube::Error::Api(answer)) if answer.code == 404 => self.register().await,
                    other => other,
                },
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "heartbeat not written");
            }
        }
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let now = MicroTime((self.clock)());
        let patch = json!({"spec": {
            "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
        }});
        match api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(error),
        }
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let owner = nodes.get(&self.name).await?.metadata.uid.map(|uid| OwnerReference {
            api_version: "v1".to_string(),
            kind: "Node".to_string(),
            name: self.name.clone(),
            uid,
            ..OwnerReference::default()
        });
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(LEASES.to_string()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        api.create(&PostParams::default(), &lease).await?;
        Ok(())
    }
}

/// As Kubernetes names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Nodes of a control plane may be up to three releases older than it, so this names a release.
fn version() -> String {
    format!("v1.36.4+steersman-{}", env!("CARGO_PKG_VERSION"))
}

fn os_name() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_string()
}

/// Processors and bytes of memory of this machine.
pub(crate) fn machine_size() -> (u64, u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    (cores, kilobytes.unwrap_or(1024 * 1024) * 1024)
}
