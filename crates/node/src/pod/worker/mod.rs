//! The life of one pod.

mod containers;
mod health;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Lifecycle, LifecycleHandler, Pod, PodStatus};
use kube::api::Api;
use nix::libc;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::events::Severity;
use super::exec::{Exec, Hook, Outcome, Request};
use super::launch::{self, Launch, LaunchError};
use super::limits;
use super::plan::{Intent, is_over, plan};
use super::probe::{Finding, Judge, Kind, Question, QuestionError, Schedule};
use super::report;
use super::state::{ContainerState, Ended, RestartPolicy, Role, Step, from_pod};
use super::status::{Facts, status};
use super::volumes::{self, Prepared};
use crate::logs;
use crate::runtime::{self, Exit, Happening, Place, PodFolder, PodNetwork, PodPlan, Program, RuntimeKind};

/// How long programs have to end when the node itself ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The most that is kept of a termination message or of a command's output.
const MESSAGE: usize = 4096;

/// Why a pod ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It was deleted and has this long.
    Deleted(Duration),
    /// The API server no longer knows it.
    Gone,
    /// It ran longer than it may.
    Deadline,
    /// The node ends.
    Shutdown,
}

/// Runs a pod until it is gone from the API server or the node ends.
pub(crate) async fn work(
    shared: Arc<Shared>,
    mut pods: watch::Receiver<Option<Arc<Pod>>>,
    shutdown: CancellationToken,
) {
    let Some(pod) = pods.borrow_and_update().clone() else { return };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let folder = match PodFolder::new(&shared.data_dir, &uid) {
        Ok(folder) => folder,
        Err(error) => {
            tracing::warn!(%error, "pod ignored");
            return;
        }
    };
    Worker::new(shared, pod, folder).run(pods, shutdown).await;
}

struct Worker {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    folder: PodFolder,
    network: PodNetwork,
    containers: Vec<ContainerState>,
    /// What belongs to a container's run and ends with it, by position.
    runs: Vec<Run>,
    room: Option<Room>,
    /// When to try again to make room, and how long to wait after that.
    retry: Option<(Instant, Duration)>,
    stopping: BTreeMap<usize, Stop>,
    helpers: BTreeMap<u64, Helper>,
    requests: (mpsc::Sender<Request>, mpsc::Receiver<Request>),
    ending: Option<Ending>,
    /// When the pod has run longer than it may.
    deadline: Option<Instant>,
    /// Nothing of it runs or ever will again.
    finished: bool,
    /// It was over before this worker began; its status stays as it is.
    was_over: bool,
    failed: Option<(String, String)>,
    start_time: jiff::Timestamp,
    reported: watch::Sender<Option<PodStatus>>,
    reporter: Option<JoinHandle<()>>,
}

/// The pod's place in the runtime and what was prepared for it.
struct Room {
    pod: runtime::Pod,
    volumes: Prepared,
}

/// What belongs to one run of a container.
#[derive(Default)]
struct Run {
    tasks: JoinSet<()>,
    log: Option<JoinHandle<()>>,
    env: Vec<(String, String)>,
}

/// A container that was told to end.
struct Stop {
    kill_at: Instant,
    told: Told,
}

#[derive(PartialEq, Eq)]
enum Told {
    /// Its hook runs; it has not been told yet.
    Hook,
    /// It was sent the polite signal.
    Polite,
}

/// A command beside a container.
struct Helper {
    answer: Option<oneshot::Sender<Result<Outcome, String>>>,
    output: JoinHandle<String>,
    kill_at: Instant,
}

impl Worker {
    fn new(shared: Arc<Shared>, pod: Arc<Pod>, folder: PodFolder) -> Self {
        let now = (shared.clock)();
        let containers = from_pod(&pod, now);
        let before = pod.status.as_ref();
        let phase = before.and_then(|status| status.phase.as_deref());
        let was_over = matches!(phase, Some("Succeeded" | "Failed"));
        let start_time = before.and_then(|status| status.start_time.as_ref()).map_or(now, |t| t.0);
        let (reported, statuses) = watch::channel(None);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let reporter = tokio::spawn(report::report(
            Api::namespaced(shared.client.clone(), namespace),
            pod.metadata.name.clone().unwrap_or_default(),
            pod.metadata.uid.clone().unwrap_or_default(),
            statuses,
        ));
        Worker {
            network: launch::network(&pod),
            runs: containers.iter().map(|_| Run::default()).collect(),
            containers,
            room: None,
            retry: None,
            stopping: BTreeMap::new(),
            helpers: BTreeMap::new(),
            requests: mpsc::channel(64),
            ending: None,
            deadline: deadline(&pod, start_time, now),
            finished: was_over,
            was_over,
            failed: None,
            start_time,
            reported,
            reporter: Some(reporter),
            shared,
            pod,
            folder,
        }
    }

    async fn run(mut self, mut pods: watch::Receiver<Option<Arc<Pod>>>, shutdown: CancellationToken) {
        self.notice_deletion();
        loop {
            let wake = match self.act().await {
                Next::Wait(wake) => wake,
                Next::Leave => break,
            };
            self.report();
            tokio::select! {
                changed = pods.changed() => match (changed, pods.borrow_and_update().clone()) {
                    (Ok(()), Some(pod)) => {
                        self.pod = pod;
                        self.notice_deletion();
                    }
                    _ => self.end(Ending::Gone),
                },
                happening = happening(&mut self.room) => self.happened(happening).await,
                Some(request) = self.requests.1.recv() => self.requested(request).await,
                () = until(wake) => {}
                () = shutdown.cancelled(), if self.ending != Some(Ending::Shutdown) => {
                    self.end(Ending::Shutdown);
                }
            }
        }
        self.leave().await;
    }

    /// Does what the plan says until there is nothing to do but wait.
    async fn act(&mut self) -> Next {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) && !self.finished {
            self.exceed_deadline();
        }
        let policy = RestartPolicy::of(&self.pod);
        let intent = match (self.finished, self.ending) {
            (false, None) => Intent::Run,
            _ => Intent::End,
        };
        let plan = plan(&self.containers, policy, intent, now);
        for position in plan.stop {
            self.stop(position).await;
        }
        self.enforce(now).await;
        if let Some(room) = &mut self.room
            && room.volumes.renewal().is_some_and(|at| at <= now)
        {
            room.volumes.renew(&self.pod, &self.shared.client).await;
        }
        if plan.over {
            match self.ending {
                Some(Ending::Deleted(_) | Ending::Gone | Ending::Shutdown) => return Next::Leave,
                Some(Ending::Deadline) | None => self.finish().await,
            }
        }
        let mut wake = plan.wake;
        if !plan.start.is_empty() && self.make_room(now).await {
            for position in plan.start {
                self.launch(position).await;
            }
            // A start that failed at once has set its own delay.
            wake = Some(now);
        }
        let timers = self
            .stopping
            .values()
            .map(|stop| stop.kill_at)
            .chain(self.helpers.values().map(|helper| helper.kill_at))
            .chain(self.retry.map(|(at, _)| at).filter(|_| self.room.is_none()))
            .chain(self.deadline.filter(|_| !self.finished))
            .chain(self.room.as_ref().and_then(|room| room.volumes.renewal()));
        Next::Wait(timers.chain(wake).min())
    }

    fn notice_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let seconds = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            self.end(Ending::Deleted(grace));
        }
    }

    /// Begins to end the pod, or ends it faster.
    fn end(&mut self, ending: Ending) {
        let sooner = Instant::now() + self.grace(Some(ending));
        for stop in self.stopping.values_mut() {
            stop.kill_at = stop.kill_at.min(sooner);
        }
        self.ending = Some(ending);
    }

    fn grace(&self, ending: Option<Ending>) -> Duration {
        let spec = self.pod.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        let usual = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        match ending {
            Some(Ending::Deleted(grace)) => grace,
            Some(Ending::Shutdown) => usual.min(SHUTDOWN_GRACE),
            Some(Ending::Gone) => usual.min(Duration::from_secs(1)),
            Some(Ending::Deadline) | None => usual,
        }
    }

    fn exceed_deadline(&mut self) {
        if self.failed.is_none() {
            let message = "Pod was active on the node longer than the specified deadline";
            self.failed = Some(("DeadlineExceeded".to_string(), message.to_string()));
            self.tell(Severity::Normal, "DeadlineExceeded", message.to_string());
        }
        self.deadline = None;
        if self.ending.is_none() {
            self.end(Ending::Deadline);
        }
    }

    /// Everything has ended for good; the pod stays as a record until it is deleted.
    async fn finish(&mut self) {
        if self.finished {
            return;
        }
        self.finished = true;
        // The address stays in the status as long as something is left to be asked for.
        self.report();
        self.give_room_up().await;
    }

    async fn give_room_up(&mut self) {
        if let Some(room) = self.room.take() {
            self.shared.runtime.destroy(self.uid(), room.pod).await;
        }
    }

    /// The worker's end: nothing of the pod may be left.
    async fn leave(mut self) {
        self.runs.clear();
        self.give_room_up().await;
        let Some(reporter) = self.reporter.take() else { return };
        if self.ending == Some(Ending::Shutdown) {
            reporter.abort();
            return;
        }
        if matches!(self.ending, Some(Ending::Deleted(_))) {
            self.report();
            drop(std::mem::replace(&mut self.reported, watch::channel(None).0));
            let _ = tokio::time::timeout(Duration::from_secs(5), reporter).await;
            let namespace = self.pod.metadata.namespace.as_deref().unwrap_or("default");
            let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
            report::confirm_deleted(&api, self.name(), self.uid()).await;
        } else {
            reporter.abort();
        }
        if let Err(error) = self.folder.remove() {
            tracing::warn!(%error, pod = self.name(), "cannot remove the pod's folder");
        }
        let _ = std::fs::remove_dir_all(self.log_folder());
    }

    /// Makes the pod's place in the runtime; false when that has to wait.
    async fn make_room(&mut self, now: Instant) -> bool {
        if self.room.is_some() {
            return true;
        }
        if self.retry.is_some_and(|(at, _)| at > now) {
            return false;
        }
        match self.try_make_room().await {
            Ok(room) => {
                self.retry = None;
                let kind = self.shared.runtime.kind();
                for warning in room.volumes.warnings.iter().cloned().chain(limits::of(&self.pod, kind)) {
                    self.tell(Severity::Warning, "NotHonoured", warning);
                }
                self.room = Some(room);
                true
            }
            Err((reason, message)) => {
                self.tell(Severity::Warning, reason, message);
                let delay = self.retry.map_or(Duration::from_secs(1), |(_, delay)| delay);
                let longer = (delay * 2).min(Duration::from_secs(60));
                self.retry = Some((Instant::now() + delay, longer));
                false
            }
        }
    }

    async fn try_make_room(&self) -> Result<Room, (&'static str, String)> {
        let sandbox = |error: std::io::Error| {
            ("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"))
        };
        self.folder.create().map_err(sandbox)?;
        let before = self.pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let plan = PodPlan {
            title: format!("{}/{}", self.namespace(), self.name()),
            uid: self.uid().to_string(),
            hostname: launch::hostname(&self.pod),
            folder: self.folder.path().to_path_buf(),
            network: self.network,
            user: launch::user(&self.pod, &self.shared),
            wanted: before.and_then(|address| address.parse().ok()),
        };
        let pod = self.shared.runtime.create(&plan).await.map_err(sandbox)?;
        let empty = Prepared::default();
        let around = self.launcher(&empty, pod.address()).surroundings();
        let prepared = volumes::prepare(&self.pod, &self.folder, &around, &self.shared.client).await;
        let volumes = match prepared {
            Ok(volumes) => volumes,
            Err(error) => {
                self.shared.runtime.destroy(self.uid(), pod).await;
                return Err(("FailedMount", error.to_string()));
            }
        };
        self.launcher(&volumes, pod.address()).write_etc().map_err(sandbox)?;
        Ok(Room { pod, volumes })
    }

    fn launcher<'a>(&'a self, volumes: &'a Prepared, address: IpAddr) -> Launch<'a> {
        Launch {
            shared: &self.shared,
            pod: &self.pod,
            folder: &self.folder,
            volumes,
            address,
            network: self.network,
        }
    }

    fn report(&mut self) {
        let status = status(&Facts {
            pod: &self.pod,
            containers: &self.containers,
            address: self.address(),
            host: self.shared.host,
            start_time: self.start_time,
            failed: self.failed.as_ref(),
            before: self.reported.borrow().as_ref(),
            now: (self.shared.clock)(),
        });
        if self.was_over {
            return;
        }
        self.reported.send_if_modified(|before| {
            let changed = before.as_ref() != Some(&status);
            if changed {
                *before = Some(status);
            }
            changed
        });
    }

    fn address(&self) -> Option<IpAddr> {
        let known = |status: &PodStatus| status.pod_ip.as_deref()?.parse().ok();
        match &self.room {
            Some(room) => Some(room.pod.address()),
            None => self.reported.borrow().as_ref().and_then(known),
        }
    }

    fn tell(&self, severity: Severity, reason: &str, message: String) {
        self.shared.events.tell(&self.pod, severity, reason, message);
    }

    fn container(&self, position: usize) -> Option<&Container> {
        let state = self.containers.get(position)?;
        let spec = self.pod.spec.as_ref()?;
        let among = match state.role {
            Role::Main => &spec.containers,
            Role::Init | Role::Sidecar => spec.init_containers.as_ref()?,
        };
        among.iter().find(|container| container.name == state.name)
    }

    fn log_folder(&self) -> std::path::PathBuf {
        self.shared.logs.pod(self.namespace(), self.name(), self.uid())
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}
/// What the loop does next.
enum Next {
    /// Wait for something, at most until then.
    Wait(Option<Instant>),
    /// The pod is over.
    Leave,
}

async fn happening(room: &mut Option<Room>) -> Happening {
    match room {
        Some(room) => room.pod.next().await,
        None => std::future::pending().await,
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

fn deadline(pod: &Pod, start: jiff::Timestamp, now: jiff::Timestamp) -> Option<Instant> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let passed = now.as_second().saturating_sub(start.as_second());
    let left = u64::try_from(seconds.saturating_sub(passed)).unwrap_or(0);
    Instant::now().checked_add(Duration::from_secs(left))
}
