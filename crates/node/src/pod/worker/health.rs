//! Probes, hooks and the commands that they run beside a container.

use super::*;

impl Worker {
    pub(super) async fn requested(&mut self, request: Request) {
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

    pub(super) async fn exec(
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
    pub(super) fn probe_health(&mut self, position: usize, run: u64, container: &Container) {
        if let Some(probe) = &container.readiness_probe {
            self.probe(position, run, container, probe, Kind::Readiness);
        }
        if let Some(probe) = &container.liveness_probe {
            self.probe(position, run, container, probe, Kind::Liveness);
        }
    }

    pub(super) fn probe(
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

    pub(super) async fn found(&mut self, position: usize, run: u64, kind: Kind, finding: Finding) {
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

    pub(super) fn unhealthy(&self, probe: &str, message: &str) {
        self.tell(Severity::Warning, "Unhealthy", format!("{probe} probe failed: {message}"));
    }

    pub(super) fn handler(&self, position: usize, hook: Hook) -> Option<LifecycleHandler> {
        if self.shared.runtime.kind() == RuntimeKind::Fake {
            return None;
        }
        let Lifecycle { post_start, pre_stop, .. } = self.container(position)?.lifecycle.as_ref()?;
        match hook {
            Hook::PostStart => post_start.clone(),
            Hook::PreStop => pre_stop.clone(),
        }
    }

    pub(super) fn run_hook(&mut self, position: usize, run: u64, hook: Hook, handler: &LifecycleHandler) {
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

    pub(super) async fn hook_done(
        &mut self,
        position: usize,
        run: u64,
        hook: Hook,
        result: Result<(), String>,
    ) {
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
}

pub(super) async fn answer_helper(mut helper: Helper, exit: Exit) {
    let Some(answer) = helper.answer.take() else { return };
    let output = tokio::time::timeout(Duration::from_millis(500), &mut helper.output).await;
    let output = output.ok().and_then(Result::ok).unwrap_or_default();
    let _ = answer.send(Ok(Outcome { code: exit.code(), output }));
}
