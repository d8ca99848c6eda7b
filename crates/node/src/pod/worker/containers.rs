//! Starting and stopping a pod's containers, and what the runtime says of them.

use super::health::answer_helper;
use super::*;

impl Worker {
    /// Starts a container; what goes wrong becomes what it waits for.
    pub(super) async fn launch(&mut self, position: usize) {
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

    pub(super) async fn start(
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

    pub(super) fn no_image(&mut self, position: usize, image: &str, message: &str) {
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

    pub(super) fn no_config(&mut self, position: usize, message: String) {
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
    pub(super) async fn stop(&mut self, position: usize) {
        if self.stopping.contains_key(&position) {
            return;
        }
        let grace = self.grace(self.ending);
        self.stop_within(position, grace).await;
    }

    pub(super) async fn stop_within(&mut self, position: usize, grace: Duration) {
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
    pub(super) async fn enforce(&mut self, now: Instant) {
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

    pub(super) async fn signal(&mut self, run: u64, signal: i32) {
        if let Some(room) = &mut self.room
            && let Err(error) = room.pod.signal(run, signal).await
        {
            tracing::debug!(%error, "signal not sent");
        }
    }

    pub(super) async fn happened(&mut self, happening: Happening) {
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

    pub(super) fn position(&self, run: u64) -> Option<usize> {
        self.containers.iter().position(|container| container.run() == Some(run))
    }

    pub(super) fn started(&mut self, position: usize, run: u64) {
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

    pub(super) async fn refused(&mut self, position: usize, message: String, now: jiff::Timestamp) {
        self.tell(Severity::Warning, "Failed", format!("Error: {message}"));
        let ended = Ended {
            reason: "StartError".to_string(),
            message: Some(message),
            id: self.containers[position].id.clone(),
            ..Ended::new(Exit::Code(128), None, now)
        };
        self.ended(position, ended, None);
    }

    pub(super) async fn exited(&mut self, position: usize, exit: Exit, now: jiff::Timestamp) {
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

    pub(super) fn ended(&mut self, position: usize, ended: Ended, lasted: Option<Duration>) {
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
    pub(super) async fn termination_message(&mut self, position: usize, exit: Exit) -> Option<String> {
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
}
