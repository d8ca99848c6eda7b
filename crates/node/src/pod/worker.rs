//! The life of one pod.

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
            finished: matches!(phase, Some("Succeeded" | "Failed")),
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
            .chain(self.deadline.filter(|_| !self.finished));
        Next::Wait(timers.chain(wake).min())
    }

    // ---- the pod as a whole

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

    // ---- containers

    /// Starts a container; what goes wrong becomes what it waits for.
    async fn launch(&mut self, position: usize) {
        let Some(container) = self.container(position).cloned() else { return };
        let image = container.image.clone().unwrap_or_default();
        let Some(room) = &self.room else { return };
        let program = self.launcher(&room.volumes, room.pod.address()).program(&container).await;
        let program = match program {
            Ok(program) => program,
            Err(LaunchError::Image(error)) => return self.no_image(position, &image, &error.to_string()),
            Err(LaunchError::Config(message)) => return self.no_config(position, message),
        };
        self.tell(
            Severity::Normal,
            "Pulled",
            format!("Container image \"{image}\" already present on machine"),
        );
        let state = &mut self.containers[position];
        if std::mem::replace(&mut state.ran, true) {
            state.restarts += 1;
        }
        let restarts = state.restarts;
        if let Err(error) = self.start(position, &container, program, restarts).await {
            let now = (self.shared.clock)();
            self.refused(position, error.to_string(), now).await;
        }
    }

    async fn start(
        &mut self,
        position: usize,
        container: &Container,
        program: Program,
        restarts: i32,
    ) -> std::io::Result<()> {
        let pod_logs = self.log_folder();
        let log = self.shared.logs.file(&pod_logs, &container.name, restarts);
        self.shared.logs.prune(&pod_logs, &container.name, restarts);
        let (stdout, out) = runtime::pipe()?;
        let (stderr, err) = runtime::pipe()?;
        let grown = self.shared.logs.grow(&log);
        let clock = Arc::clone(&self.shared.clock);
        let recording = tokio::spawn(logs::record(log, stdout, stderr, grown, clock));
        let Some(room) = &mut self.room else { return Ok(()) };
        let run = room.pod.run(&program, out, err).await?;
        self.runs[position] = Run { tasks: JoinSet::new(), log: Some(recording), env: program.env };
        let state = &mut self.containers[position];
        state.step = Step::Starting { run, since: (self.shared.clock)() };
        state.id = Some(format!("steersman://{:032x}", rand::random::<u128>()));
        state.ready = false;
        state.started = false;
        self.tell(Severity::Normal, "Created", format!("Created container: {}", container.name));
        Ok(())
    }

    fn no_image(&mut self, position: usize, image: &str, message: &str) {
        let delay = self.containers[position].backoff.next_delay();
        let first = !matches!(
            self.containers[position].step,
            Step::Waiting { reason: "ErrImagePull" | "ImagePullBackOff", .. }
        );
        if first {
            let text = format!("Failed to pull image \"{image}\": {message}");
            self.tell(Severity::Warning, "Failed", text);
        } else {
            let text = format!("Back-off pulling image \"{image}\": {message}");
            self.tell(Severity::Normal, "BackOff", text);
        }
        self.containers[position].step = Step::Waiting {
            reason: if first { "ErrImagePull" } else { "ImagePullBackOff" },
            message: Some(message.to_string()),
            until: Some(Instant::now() + delay),
        };
    }

    fn no_config(&mut self, position: usize, message: String) {
        self.tell(Severity::Warning, "Failed", format!("Error: {message}"));
        let again = match self.containers[position].step {
            Step::Waiting { reason: "CreateContainerConfigError", .. } => 5,
            _ => 1,
        };
        self.containers[position].step = Step::Waiting {
            reason: "CreateContainerConfigError",
            message: Some(message),
            until: Some(Instant::now() + Duration::from_secs(again)),
        };
    }

    /// Tells a container to end.
    async fn stop(&mut self, position: usize) {
        if self.stopping.contains_key(&position) {
            return;
        }
        let grace = self.grace(self.ending);
        self.stop_within(position, grace).await;
    }

    async fn stop_within(&mut self, position: usize, grace: Duration) {
        let Some(run) = self.containers[position].run() else { return };
        let name = self.containers[position].name.clone();
        self.tell(Severity::Normal, "Killing", format!("Stopping container {name}"));
        let kill_at = Instant::now() + grace;
        let hook = self.handler(position, Hook::PreStop).filter(|_| !grace.is_zero());
        let told = match hook {
            Some(hook) => {
                self.run_hook(position, run, Hook::PreStop, &hook);
                Told::Hook
            }
            None => {
                self.signal(run, if grace.is_zero() { libc::SIGKILL } else { libc::SIGTERM }).await;
                Told::Polite
            }
        };
        self.stopping.insert(position, Stop { kill_at, told });
    }

    /// Kills what has had its time.
    async fn enforce(&mut self, now: Instant) {
        let mut late = Vec::new();
        for (position, stop) in &mut self.stopping {
            if stop.kill_at <= now {
                late.extend(self.containers[*position].run());
                stop.kill_at = now + Duration::from_secs(5);
            }
        }
        for (run, helper) in &mut self.helpers {
            if helper.kill_at <= now {
                late.push(*run);
                helper.kill_at = now + Duration::from_secs(5);
                if let Some(answer) = helper.answer.take() {
                    let _ = answer.send(Err("command timed out".to_string()));
                }
            }
        }
        for run in late {
            self.signal(run, libc::SIGKILL).await;
        }
    }

    async fn signal(&mut self, run: u64, signal: i32) {
        if let Some(room) = &mut self.room
            && let Err(error) = room.pod.signal(run, signal).await
        {
            tracing::debug!(%error, "signal not sent");
        }
    }

    // ---- what the runtime says

    async fn happened(&mut self, happening: Happening) {
        let now = (self.shared.clock)();
        match happening {
            Happening::Started { id } => {
                if let Some(position) = self.position(id) {
                    self.started(position, id);
                }
            }
            Happening::Refused { id, message } => {
                if let Some(position) = self.position(id) {
                    self.refused(position, message, now).await;
                } else if let Some(mut helper) = self.helpers.remove(&id)
                    && let Some(answer) = helper.answer.take()
                {
                    let _ = answer.send(Err(message));
                }
            }
            Happening::Exited { id, exit } => {
                if let Some(position) = self.position(id) {
                    self.exited(position, exit, now).await;
                } else if let Some(helper) = self.helpers.remove(&id) {
                    answer_helper(helper, exit).await;
                }
            }
            Happening::Lost => {
                self.tell(
                    Severity::Warning,
                    "SandboxChanged",
                    "Pod sandbox changed, it will be killed and re-created.".to_string(),
                );
                self.give_room_up().await;
                self.helpers.clear();
                for position in 0..self.containers.len() {
                    if self.containers[position].run().is_some() {
                        self.exited(position, Exit::Signal(libc::SIGKILL), now).await;
                    }
                }
            }
        }
    }

    fn position(&self, run: u64) -> Option<usize> {
        self.containers.iter().position(|container| container.run() == Some(run))
    }

    fn started(&mut self, position: usize, run: u64) {
        let Some(container) = self.container(position).cloned() else { return };
        let now = (self.shared.clock)();
        let state = &mut self.containers[position];
        state.step = Step::Running { run, since: now, at: Instant::now() };
        state.started = container.startup_probe.is_none();
        state.ready = state.started && container.readiness_probe.is_none();
        let begins = state.started;
        self.tell(Severity::Normal, "Started", format!("Started container {}", container.name));
        if let Some(hook) = self.handler(position, Hook::PostStart) {
            self.run_hook(position, run, Hook::PostStart, &hook);
        }
        if begins {
            self.probe_health(position, run, &container);
        } else if let Some(probe) = &container.startup_probe {
            self.probe(position, run, &container, probe, Kind::Startup);
        }
    }

    async fn refused(&mut self, position: usize, message: String, now: jiff::Timestamp) {
        self.tell(Severity::Warning, "Failed", format!("Error: {message}"));
        let ended = Ended {
            reason: "StartError".to_string(),
            message: Some(message),
            id: self.containers[position].id.clone(),
            ..Ended::new(Exit::Code(128), None, now)
        };
        self.ended(position, ended, None);
    }

    async fn exited(&mut self, position: usize, exit: Exit, now: jiff::Timestamp) {
        let state = &self.containers[position];
        let (since, lasted) = match state.step {
            Step::Running { since, at, .. } => (Some(since), Some(at.elapsed())),
            Step::Starting { since, .. } => (Some(since), None),
            _ => (None, None),
        };
        let id = state.id.clone();
        let message = self.termination_message(position, exit).await;
        let ended = Ended { message, id, ..Ended::new(exit, since, now) };
        self.ended(position, ended, lasted);
    }

    fn ended(&mut self, position: usize, ended: Ended, lasted: Option<Duration>) {
        self.stopping.remove(&position);
        self.runs[position].tasks.abort_all();
        let policy = RestartPolicy::of(&self.pod);
        let restarts = self.ending.is_none()
            && !is_over(&self.containers, policy)
            && policy.restarts(self.containers[position].role, ended.code);
        let (pod, uid) = (format!("{}_{}", self.name(), self.namespace()), self.uid().to_string());
        let state = &mut self.containers[position];
        state.ready = false;
        state.started = false;
        if !restarts {
            state.step = Step::Ended(ended);
            return;
        }
        let delay = state.backoff.next(lasted);
        state.last = Some(ended);
        let name = state.name.clone();
        if delay.is_zero() {
            state.step = Step::Waiting { reason: "ContainerCreating", message: None, until: None };
            return;
        }
        let seconds = delay.as_secs();
        let shown = match (seconds / 60, seconds % 60) {
            (0, seconds) => format!("{seconds}s"),
            (minutes, seconds) => format!("{minutes}m{seconds}s"),
        };
        let message = format!("back-off {shown} restarting failed container={name} pod={pod}({uid})");
        state.step = Step::Waiting {
            reason: "CrashLoopBackOff",
            message: Some(message),
            until: Some(Instant::now() + delay),
        };
        let text = format!("Back-off restarting failed container {name} in pod {pod}({uid})");
        self.tell(Severity::Warning, "BackOff", text);
    }

    /// What the container left as its last words.
    async fn termination_message(&mut self, position: usize, exit: Exit) -> Option<String> {
        let container = self.container(position)?.clone();
        let bytes = std::fs::read(self.folder.termination(&container.name)).unwrap_or_default();
        let said = String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE)]).into_owned();
        // The output is complete once its pipes are closed, which the runtime sees to.
        if let Some(log) = self.runs[position].log.take() {
            let _ = tokio::time::timeout(Duration::from_secs(1), log).await;
        }
        let fall_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if !said.is_empty() || exit.code() == 0 || !fall_back {
            return (!said.is_empty()).then_some(said);
        }
        let restarts = self.containers[position].restarts;
        let log = self.shared.logs.file(&self.log_folder(), &container.name, restarts);
        logs::tail(&log, 80, 2048).await
    }

    // ---- probes, hooks and commands

    async fn requested(&mut self, request: Request) {
        match request {
            Request::Exec { position, argv, timeout, answer } => {
                self.exec(position, argv, timeout, answer).await;
            }
            Request::Probe { position, run, kind, finding } => {
                if self.containers[position].run() == Some(run) {
                    self.found(position, run, kind, finding).await;
                }
            }
            Request::Hook { position, run, hook, result } => {
                if self.containers[position].run() == Some(run) {
                    self.hook_done(position, run, hook, result).await;
                }
            }
        }
    }

    async fn exec(
        &mut self,
        position: usize,
        argv: Vec<String>,
        timeout: Duration,
        answer: oneshot::Sender<Result<Outcome, String>>,
    ) {
        let (Some(run), Some(room)) = (self.containers[position].run(), &mut self.room) else {
            let _ = answer.send(Err("the container does not run".to_string()));
            return;
        };
        let program = Program {
            argv,
            env: self.runs[position].env.clone(),
            working_dir: "/".into(),
            place: Place::Beside(run),
        };
        let started = async {
            let (mut reader, out) = runtime::pipe()?;
            let err = out.try_clone()?;
            let id = room.pod.run(&program, out, err).await?;
            let output = tokio::spawn(async move {
                let mut text = Vec::new();
                let mut part = (&mut reader).take(MESSAGE as u64);
                let _ = part.read_to_end(&mut text).await;
                // The command must be able to write on.
                let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
                String::from_utf8_lossy(&text).into_owned()
            });
            Ok::<_, std::io::Error>((id, output))
        };
        match started.await {
            Ok((id, output)) => {
                let kill_at = Instant::now() + timeout;
                self.helpers.insert(id, Helper { answer: Some(answer), output, kill_at });
            }
            Err(error) => {
                let _ = answer.send(Err(error.to_string()));
            }
        }
    }

    /// Readiness and liveness, which begin once the container has started.
    fn probe_health(&mut self, position: usize, run: u64, container: &Container) {
        if let Some(probe) = &container.readiness_probe {
            self.probe(position, run, container, probe, Kind::Readiness);
        }
        if let Some(probe) = &container.liveness_probe {
            self.probe(position, run, container, probe, Kind::Liveness);
        }
    }

    fn probe(
        &mut self,
        position: usize,
        run: u64,
        container: &Container,
        probe: &k8s_openapi::api::core::v1::Probe,
        kind: Kind,
    ) {
        let Some(room) = &self.room else { return };
        let address = match self.network {
            PodNetwork::Host => IpAddr::from([127, 0, 0, 1]),
            PodNetwork::Own => room.pod.address(),
        };
        let question = match Question::of(probe, container, address) {
            Ok(question) => Some(question),
            Err(error @ QuestionError::Unsupported) => {
                self.tell(Severity::Warning, "NotHonoured", format!("{} probe: {error}", kind.name()));
                None
            }
            Err(error @ QuestionError::Invalid(_)) => {
                self.tell(Severity::Warning, "Unhealthy", format!("{} probe: {error}", kind.name()));
                return;
            }
        };
        // Nothing answers in a fake pod, so everything is as it should be.
        let question = question.filter(|_| self.shared.runtime.kind() != RuntimeKind::Fake);
        let exec = Exec { position, worker: self.requests.0.clone() };
        let network = self.shared.runtime.network().clone();
        let schedule = Schedule::of(kind, probe);
        self.runs[position].tasks.spawn(async move {
            let mut judge = Judge::new(schedule);
            tokio::time::sleep_until(judge.first(Instant::now())).await;
            loop {
                let answer = match &question {
                    Some(question) => question.ask(&network, &exec, schedule.timeout).await,
                    None => Ok(()),
                };
                if let Some(finding) = judge.hear(answer) {
                    let told = Request::Probe { position, run, kind, finding };
                    if exec.worker.send(told).await.is_err() {
                        return;
                    }
                }
                if question.is_none() {
                    return;
                }
                tokio::time::sleep(judge.pause()).await;
            }
        });
    }

    async fn found(&mut self, position: usize, run: u64, kind: Kind, finding: Finding) {
        let Some(container) = self.container(position).cloned() else { return };
        let name = kind.name();
        match (kind, finding) {
            (Kind::Startup, Finding::Healthy) => {
                if !self.containers[position].started {
                    self.containers[position].started = true;
                    self.containers[position].ready = container.readiness_probe.is_none();
                    self.probe_health(position, run, &container);
                }
            }
            (Kind::Readiness, Finding::Healthy) => self.containers[position].ready = true,
            (Kind::Liveness, Finding::Healthy) => {}
            (Kind::Readiness, Finding::Unhealthy(message)) => {
                self.containers[position].ready = false;
                self.unhealthy(name, &message);
            }
            (_, Finding::Failure(message)) => self.unhealthy(name, &message),
            (Kind::Startup | Kind::Liveness, Finding::Unhealthy(message)) => {
                self.unhealthy(name, &message);
                if self.stopping.contains_key(&position) {
                    return;
                }
                let what = format!(
                    "Container {} failed {} probe, will be restarted",
                    container.name,
                    name.to_lowercase()
                );
                self.tell(Severity::Normal, "Killing", what);
                let probe = match kind {
                    Kind::Startup => container.startup_probe,
                    _ => container.liveness_probe,
                };
                let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
                let own = own.and_then(|seconds| u64::try_from(seconds).ok());
                let grace = own.map_or_else(|| self.grace(None), Duration::from_secs);
                self.stop_within(position, grace).await;
            }
        }
    }

    fn unhealthy(&self, probe: &str, message: &str) {
        self.tell(Severity::Warning, "Unhealthy", format!("{probe} probe failed: {message}"));
    }

    fn handler(&self, position: usize, hook: Hook) -> Option<LifecycleHandler> {
        if self.shared.runtime.kind() == RuntimeKind::Fake {
            return None;
        }
        let Lifecycle { post_start, pre_stop, .. } = self.container(position)?.lifecycle.as_ref()?;
        match hook {
            Hook::PostStart => post_start.clone(),
            Hook::PreStop => pre_stop.clone(),
        }
    }

    fn run_hook(&mut self, position: usize, run: u64, hook: Hook, handler: &LifecycleHandler) {
        let (Some(room), Some(container)) = (&self.room, self.container(position)) else { return };
        let address = match self.network {
            PodNetwork::Host => IpAddr::from([127, 0, 0, 1]),
            PodNetwork::Own => room.pod.address(),
        };
        let question = match (&handler.exec, &handler.http_get) {
            (Some(action), _) => Ok(Question::Exec(action.command.clone().unwrap_or_default())),
            (None, Some(action)) => Question::http(action, container, address),
            (None, None) => Err(QuestionError::Unsupported),
        };
        let pause = handler
            .sleep
            .as_ref()
            .map(|sleep| Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0)));
        let exec = Exec { position, worker: self.requests.0.clone() };
        let network = self.shared.runtime.network().clone();
        self.runs[position].tasks.spawn(async move {
            let result = match (pause, question) {
                (Some(pause), _) => {
                    tokio::time::sleep(pause).await;
                    Ok(())
                }
                // The pod's grace period bounds it.
                (None, Ok(question)) => question.ask(&network, &exec, Duration::from_secs(600)).await,
                (None, Err(error)) => Err(error.to_string()),
            };
            let _ = exec.worker.send(Request::Hook { position, run, hook, result }).await;
        });
    }

    async fn hook_done(&mut self, position: usize, run: u64, hook: Hook, result: Result<(), String>) {
        match (hook, result) {
            (Hook::PostStart, Ok(())) => {}
            (Hook::PostStart, Err(message)) => {
                self.tell(Severity::Warning, "FailedPostStartHook", message);
                let grace = self.grace(None);
                self.stop_within(position, grace).await;
            }
            (Hook::PreStop, result) => {
                if let Err(message) = result {
                    self.tell(Severity::Warning, "FailedPreStopHook", message);
                }
                if let Some(stop) = self.stopping.get_mut(&position)
                    && stop.told == Told::Hook
                {
                    stop.told = Told::Polite;
                    self.signal(run, libc::SIGTERM).await;
                }
            }
        }
    }

    // ---- what is told

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
        // A pod that was over before this worker began stays as it was.
        if self.finished && self.reported.borrow().is_none() {
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

async fn answer_helper(mut helper: Helper, exit: Exit) {
    let Some(answer) = helper.answer.take() else { return };
    let output = tokio::time::timeout(Duration::from_millis(500), &mut helper.output).await;
    let output = output.ok().and_then(Result::ok).unwrap_or_default();
    let _ = answer.send(Ok(Outcome { code: exit.code(), output }));
}

fn deadline(pod: &Pod, start: jiff::Timestamp, now: jiff::Timestamp) -> Option<Instant> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let passed = now.as_second().saturating_sub(start.as_second());
    let left = u64::try_from(seconds.saturating_sub(passed)).unwrap_or(0);
    Instant::now().checked_add(Duration::from_secs(left))
}
