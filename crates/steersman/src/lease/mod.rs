//! Leader election on a Kubernetes `Lease`.
//!
//! A candidate holds the lease while it renews it in time by its *own* monotonic clock: what
//! wall clocks say never matters, so skewed clocks cannot make two leaders. A follower takes
//! the lease over only after it has seen no change of it for the lease's whole duration.

mod fence;
mod step;

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{PostParams, WatchParams};
use kube::core::{ObjectMeta, WatchEvent};
use kube::{Api, Client, ResourceExt};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

pub use self::fence::Fenced;
pub(crate) use self::fence::{Fence, counted};
use self::step::{Observer, Verdict};
use crate::clock::Clock;
use crate::jitter::Jitter;

/// Which lease is held, by whom, and how fast a dead leader is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// Name of the Lease object, such as `webapp.steersman.io`.
    pub name: String,
    /// Who we are; different for every process. The pod's name, or host and process id.
    pub identity: String,
    /// How long a lease counts after its last change. 15 seconds.
    pub duration: Duration,
    /// A leader that could not renew for this long gives up; shorter than the duration.
    /// 10 seconds.
    pub renew_deadline: Duration,
    /// How often it is renewed. 2 seconds.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// The usual times, and an identity of this process.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: default_identity(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let name = format!("lease {}/{}", self.namespace, self.name);
        if self.namespace.is_empty() || self.name.is_empty() || self.identity.is_empty() {
            return Err(format!("{name}: namespace, name and identity must not be empty"));
        }
        if self.renew_deadline >= self.duration {
            return Err(format!(
                "{name}: the renew deadline {:?} must be shorter than the duration {:?}, or two leaders could act at once",
                self.renew_deadline, self.duration
            ));
        }
        if self.retry_period >= self.renew_deadline || self.retry_period.is_zero() {
            return Err(format!(
                "{name}: the retry period {:?} must be longer than nothing and shorter than the renew deadline {:?}",
                self.retry_period, self.renew_deadline
            ));
        }
        Ok(())
    }
}

/// `POD_NAME`, else the host's name and the process id.
fn default_identity() -> String {
    if let Ok(pod) = std::env::var("POD_NAME")
        && !pod.is_empty()
    {
        return pod;
    }
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    format!("{host}-{}", std::process::id())
}

/// One candidate for one lease.
pub(crate) struct Election {
    api: Api<Lease>,
    options: LeaseOptions,
    clock: Clock,
    jitter: Jitter,
    fence: Fence,
    leading: Gauge,
    slow_path: Counter,
}

impl Election {
    pub(crate) fn new(
        client: Client,
        options: LeaseOptions,
        clock: Clock,
        jitter: Jitter,
        fence: Fence,
        (leading, slow_path): (Gauge, Counter),
    ) -> Self {
        Self {
            api: Api::namespaced(client, &options.namespace),
            options,
            clock,
            jitter,
            fence,
            leading,
            slow_path,
        }
    }

    /// Waits until the lease is ours.
    pub(crate) async fn acquire(&self) -> Held {
        let mut observer = Observer::new(&self.options.identity);
        tracing::info!(lease = %self.name(), identity = self.options.identity, "waiting for leadership");
        loop {
            match self.try_acquire(&mut observer).await {
                Ok(Attempt::Won(held)) => return *held,
                Ok(Attempt::Wait { until, version }) => {
                    self.wait(until, version.as_deref(), &mut observer).await;
                }
                Err(error) => {
                    tracing::warn!(lease = %self.name(), error = %crate::Error::from(error), "lease cannot be read or written");
                    let pause = self.jitter.spread(self.options.retry_period, 0.2);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn try_acquire(&self, observer: &mut Observer) -> kube::Result<Attempt> {
        let known = self.api.get_opt(&self.options.name).await?;
        let began = Instant::now();
        let verdict = observer.look(known.as_ref().and_then(|lease| lease.spec.as_ref()), began);
        let until = match verdict {
            Verdict::Free { transitions } => {
                let written = self.write(known.as_ref(), transitions).await;
                match written {
                    Ok(lease) => return Ok(Attempt::Won(Box::new(self.won(lease, began)))),
                    // Another candidate was faster.
                    Err(kube::Error::Api(status)) if status.code == 409 => began,
                    Err(error) => return Err(error),
                }
            }
            Verdict::Held { until } => until,
        };
        let version = known.and_then(|lease| lease.resource_version());
        Ok(Attempt::Wait { until, version })
    }

    /// Renews until that fails for too long; returns why leadership ended.
    pub(crate) async fn hold(&self, held: Held) -> String {
        let Held { mut lease, mut until } = held;
        loop {
            tokio::time::sleep(self.jitter.spread(self.options.retry_period, 0.1)).await;
            let began = Instant::now();
            // An answer that does not come must not take the time of a second attempt.
            let patience = until.min(began + self.options.renew_deadline / 2);
            let renewed = tokio::time::timeout_at(patience, self.renew(&lease)).await;
            match renewed {
                Ok(Ok(Renewal::Renewed(next))) => {
                    lease = *next;
                    until = began + self.options.renew_deadline;
                    self.fence.extend(until);
                }
                Ok(Ok(Renewal::Lost { holder })) => return format!("{holder} holds it now"),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.name(), error = %crate::Error::from(error), "lease cannot be renewed, trying again");
                }
                Err(_) => {}
            }
            if Instant::now() >= until {
                return format!("it could not be renewed for {:?}", self.options.renew_deadline);
            }
        }
    }

    async fn renew(&self, lease: &Lease) -> kube::Result<Renewal> {
        let transitions = transitions(lease);
        match self.write(Some(lease), transitions).await {
            Ok(lease) => return Ok(Renewal::Renewed(Box::new(lease))),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(error),
        }
        // Someone changed the lease; it is still ours if only a label or the like was.
        self.slow_path.inc();
        let known = self.api.get_opt(&self.options.name).await?;
        let holder = known
            .as_ref()
            .and_then(|lease| lease.spec.as_ref())
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_else(|| "nobody".to_owned());
        match known {
            Some(known) if holder == self.options.identity && self::transitions(&known) == transitions => {
                let lease = self.write(Some(&known), transitions).await?;
                Ok(Renewal::Renewed(Box::new(lease)))
            }
            _ => Ok(Renewal::Lost { holder }),
        }
    }

    /// Hands the lease back, so that the next one need not wait.
    pub(crate) async fn release(&self) {
        self.lost();
        let release = async {
            let Some(mut lease) = self.api.get_opt(&self.options.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.options.identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime((self.clock)()));
            self.api.replace(&self.options.name, &PostParams::default(), &lease).await?;
            Ok::<_, kube::Error>(())
        };
        match tokio::time::timeout(self.options.renew_deadline, release).await {
            Ok(Ok(())) => tracing::info!(lease = %self.name(), "lease released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.name(), %error, "lease not released, it runs out by itself");
            }
            Err(_) => {
                tracing::warn!(lease = %self.name(), "lease not released in time, it runs out by itself");
            }
        }
    }

    /// From here on nothing may be written in the leader's name.
    pub(crate) fn lost(&self) {
        self.fence.close();
        self.leading.set(0);
    }

    /// `namespace/name` of the lease.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.options.namespace, self.options.name)
    }

    fn won(&self, lease: Lease, began: Instant) -> Held {
        self.leading.set(1);
        let until = began + self.options.renew_deadline;
        self.fence.open(&self.name(), transitions(&lease), until);
        tracing::info!(lease = %self.name(), identity = self.options.identity, "leading");
        Held { lease, until }
    }

    /// Writes us as the holder; refused by the server when the lease is not the known one.
    async fn write(&self, known: Option<&Lease>, transitions: i32) -> kube::Result<Lease> {
        let now = MicroTime((self.clock)());
        let before = known.and_then(|lease| lease.spec.clone());
        let acquired = before
            .as_ref()
            .filter(|spec| {
                spec.holder_identity.as_deref() == Some(&self.options.identity)
                    && spec.lease_transitions == Some(transitions)
            })
            .and_then(|spec| spec.acquire_time.clone());
        let spec = LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.options.duration.as_secs().max(1)).unwrap_or(i32::MAX),
            ),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..before.unwrap_or_default()
        };
        match known {
            Some(known) => {
                let mut lease = known.clone();
                lease.metadata.managed_fields = None;
                lease.spec = Some(spec);
                self.api.replace(&self.options.name, &PostParams::default(), &lease).await
            }
            None => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.options.name.clone()),
                        namespace: Some(self.options.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                self.api.create(&PostParams::default(), &lease).await
            }
        }
    }

    /// Waits until the lease has run out, or nobody holds it any more. Every renewal is noted
    /// when it is heard of, so that the lease runs out that long after the last one.
    async fn wait(&self, mut until: Instant, version: Option<&str>, observer: &mut Observer) {
        let params =
            WatchParams::default().fields(&format!("metadata.name={}", self.options.name)).timeout(290);
        // Whatever the others do, we are not in a hurry.
        until = until.max(Instant::now() + Duration::from_millis(50));
        let opened = tokio::time::timeout_at(until, self.api.watch(&params, version.unwrap_or("0")));
        let Ok(Ok(events)) = opened.await else {
            return tokio::time::sleep_until(until).await;
        };
        let mut events = std::pin::pin!(events);
        loop {
            let Ok(event) = tokio::time::timeout_at(until, events.next()).await else {
                return;
            };
            let lease = match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => lease,
                Some(Ok(WatchEvent::Bookmark(_))) => continue,
                Some(Ok(WatchEvent::Deleted(_))) => return,
                // Without the watch, the lease is looked at when it may have run out.
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                    return tokio::time::sleep_until(until).await;
                }
            };
            match observer.look(lease.spec.as_ref(), Instant::now()) {
                Verdict::Held { until: later } => until = later,
                Verdict::Free { .. } => return,
            }
        }
    }
}

/// A lease that is ours, and until when it surely counts.
pub(crate) struct Held {
    lease: Lease,
    until: Instant,
}

enum Attempt {
    Won(Box<Held>),
    Wait { until: Instant, version: Option<String> },
}

enum Renewal {
    Renewed(Box<Lease>),
    Lost { holder: String },
}

fn transitions(lease: &Lease) -> i32 {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.lease_transitions).unwrap_or(0)
}
