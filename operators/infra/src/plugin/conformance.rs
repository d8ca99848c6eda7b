//! Checks a plugin in a process of its own against the contract.
//!
//! The plugin really acts: it applies, is killed, resumes, and destroys, with the parameters and
//! settings that it is given. Run it against something that may be touched.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::process::{CallError, Process};
use super::wire::{Call, FaultKind, Hello, Introduction};
use super::{LARGEST_CHECKPOINT, ProcessOptions};
use crate::action::{Capability, Description, Drift, Plan, Progress, Task};
use crate::types::Operation;

/// How long following one action may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait between two questions at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the plugin is asked to do.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The operator's settings for it.
    pub settings: Map<String, Value>,
    /// The parameters of the resource that it makes and destroys.
    pub parameters: Map<String, Value>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each check and how it went, in order.
    pub checks: Vec<(&'static str, Verdict)>,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Passed,
    /// Not as it should, and in what.
    Failed(String),
    /// The plugin does not claim to be able to.
    NotClaimed,
}

impl Report {
    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|(_, verdict)| matches!(verdict, Verdict::Failed(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (check, verdict) in &self.checks {
            match verdict {
                Verdict::Passed => writeln!(f, "ok       {check}")?,
                Verdict::Failed(why) => writeln!(f, "FAILED   {check}: {why}")?,
                Verdict::NotClaimed => writeln!(f, "-        {check} (not claimed)")?,
            }
        }
        let failed = self.checks.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).count();
        match failed {
            0 => write!(f, "the plugin keeps the contract {}", crate::action::CONTRACT),
            _ => write!(f, "{failed} of {} checks failed", self.checks.len()),
        }
    }
}

/// Runs every check.
pub async fn check(options: &ProcessOptions, sample: &Sample) -> Report {
    let mut bench = Bench { options, sample, description: Description::new("", "", []), attempts: 0 };
    let mut report = Report::default();
    let started = bench.introduction().await;
    let stop = started.is_err();
    report.note("introduces itself, and takes its settings", started);
    if stop {
        return report;
    }
    report.note("ignores fields that it does not know", bench.unknown_fields().await);
    report.note("answers unknown methods with an error of kind unsupported", bench.unknown_method().await);
    report.note("answers requests that wait in line, each with its id", bench.in_line().await);
    report.note("survives large parameters", bench.large().await);
    report.note("plans without touching anything", bench.plan().await);
    report.note("applies, and applies the same attempt again", bench.apply().await);
    report.note("finds no drift in what it has just made", bench.drift().await);
    report.note("tells the outputs of what is there", bench.outputs().await);
    report.note("goes on after being killed, with and without a checkpoint", bench.killed().await);
    report.note("cancels what is under way, and what is not", bench.cancel().await);
    report.note("destroys, and destroys what is gone", bench.destroy().await);
    report.note("ends when its input is closed, and leaves no process behind", bench.close().await);
    report
}

/// Whether the plugin claims what is checked.
enum Claim {
    Made,
    NotMade,
}

type Checked = Result<Claim, String>;

impl Report {
    fn note(&mut self, check: &'static str, found: Checked) {
        let verdict = match found {
            Ok(Claim::Made) => Verdict::Passed,
            Ok(Claim::NotMade) => Verdict::NotClaimed,
            Err(why) => Verdict::Failed(why),
        };
        self.checks.push((check, verdict));
    }
}

struct Bench<'a> {
    options: &'a ProcessOptions,
    sample: &'a Sample,
    description: Description,
    attempts: u32,
}

impl Bench<'_> {
    /// A process that has introduced itself and has its settings.
    async fn start(&self) -> Result<(Process, Introduction), String> {
        let process = Process::start("conformance", self.options)?;
        let patience = self.options.start_timeout;
        let said = process.call(Call::Describe(Hello::ours()), patience).await;
        let said = said.map_err(|error| format!("Describe: {error}"))?;
        let introduction: Introduction =
            serde_json::from_value(said).map_err(|error| format!("Describe: the answer is none: {error}"))?;
        let settings = self.sample.settings.clone();
        let configured = process.call(Call::Configure { settings }, patience).await;
        configured.map_err(|error| format!("Configure: {error}"))?;
        Ok((process, introduction))
    }

    async fn running(&self) -> Result<Process, String> {
        self.start().await.map(|(process, _)| process)
    }

    fn task(&self, operation: Operation) -> Task {
        Task {
            attempt: format!("conformance-{}", self.attempts),
            started_at: Timestamp::now(),
            operation,
            name: "conformance".into(),
            namespace: "default".into(),
            uid: "00000000-0000-4000-8000-000000000001".into(),
            type_name: "Conformance".into(),
            type_version: "v1".into(),
            generation: 1,
            parameters: self.sample.parameters.clone(),
            config: self.sample.settings.clone(),
            last_run: None,
            outputs: Map::new(),
            now: Timestamp::now(),
        }
    }

    async fn ask(&self, process: &Process, call: Call) -> Result<Value, String> {
        let method = call.method();
        process.call(call, self.options.call_timeout).await.map_err(|error| format!("{method}: {error}"))
    }

    async fn progress(&self, process: &Process, call: Call) -> Result<Progress, String> {
        let method = call.method();
        let answer = self.ask(process, call).await?;
        let progress: Progress = serde_json::from_value(answer)
            .map_err(|error| format!("{method}: the answer is none: {error}"))?;
        if let Progress::Running { checkpoint, .. } = &progress
            && checkpoint.to_string().len() > LARGEST_CHECKPOINT
        {
            return Err(format!("{method}: the checkpoint is larger than {LARGEST_CHECKPOINT} bytes"));
        }
        Ok(progress)
    }

    /// Follows an action to its end, which must be a success.
    async fn follow(&self, process: &Process, task: &Task, first: Progress) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut progress = first;
        loop {
            match progress {
                Progress::Done(_) => return Ok(()),
                Progress::Failed { message, .. } => return Err(format!("it failed: {message}")),
                Progress::Running { checkpoint, after, .. } => {
                    if Instant::now() > deadline {
                        return Err(format!("it is still running after {PATIENCE:?}"));
                    }
                    tokio::time::sleep(after.min(LONGEST_PAUSE)).await;
                    let call = Call::Resume { task: task.clone(), checkpoint: Some(checkpoint) };
                    progress = self.progress(process, call).await?;
                }
            }
        }
    }

    async fn introduction(&mut self) -> Checked {
        let (_process, introduction) = self.start().await?;
        self.description = introduction.understand(&introduction.name)?;
        match introduction.name.is_empty() || introduction.version.is_empty() {
            true => Err("name and version must not be empty".into()),
            false => Ok(Claim::Made),
        }
    }

    async fn raw(&self, process: &Process, line: Value) -> Result<Value, CallError> {
        let mut line = line;
        let id = process.number();
        // Written by hand: a request begins with id and method, which a shell relies on.
        let (method, params) = (line["method"].take(), line["params"].take());
        let later = if line["later"].is_null() { String::new() } else { r#","later":{"a":[1]}"#.to_owned() };
        let text = format!("{{\"id\":{id},\"method\":{method},\"params\":{params}{later}}}\n");
        process.send(id, "a request", text.into_bytes(), self.options.call_timeout).await
    }

    async fn unknown_fields(&self) -> Checked {
        let process = self.running().await?;
        let mut task = json!(self.task(Operation::Apply));
        task["later"] = json!({"nested": [null]});
        let request = json!({"method": "Validate", "params": {"task": task, "later": 1}, "later": true});
        match self.raw(&process, request).await {
            Ok(_) => Ok(Claim::Made),
            Err(CallError::Fault(fault)) if fault.kind == FaultKind::Permanent => {
                Err(format!("Validate: {}; give parameters and settings that it takes", fault.message))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    async fn unknown_method(&self) -> Checked {
        let process = self.running().await?;
        match self.raw(&process, json!({"method": "Levitate", "params": {}})).await {
            Err(CallError::Fault(fault)) if fault.kind == FaultKind::Unsupported => Ok(Claim::Made),
            Err(CallError::Fault(fault)) => Err(format!("the error is of kind {:?}", fault.kind)),
            Err(error) => Err(error.to_string()),
            Ok(answer) => Err(format!("it answered {answer}")),
        }
    }

    async fn in_line(&self) -> Checked {
        let process = self.running().await?;
        let task = self.task(Operation::Apply);
        let calls = (0..8).map(|_| self.ask(&process, Call::Validate { task: task.clone() }));
        futures::future::try_join_all(calls).await.map(|_| Claim::Made)
    }

    async fn large(&self) -> Checked {
        let process = self.running().await?;
        let mut task = self.task(Operation::Apply);
        task.parameters.insert("conformance_padding".into(), Value::String("x".repeat(1 << 20)));
        match process.call(Call::Validate { task }, self.options.call_timeout).await {
            // Not to like them is fine.
            Ok(_) | Err(CallError::Fault(_)) => Ok(Claim::Made),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn plan(&self) -> Checked {
        if !self.description.can(Capability::Plan) {
            return Ok(Claim::NotMade);
        }
        let process = self.running().await?;
        let task = self.task(Operation::Apply);
        let mut plans: Vec<Plan> = Vec::new();
        for _ in 0..2 {
            let answer = self.ask(&process, Call::Plan { task: task.clone() }).await?;
            plans.push(
                serde_json::from_value(answer)
                    .map_err(|error| format!("Plan: the answer is none: {error}"))?,
            );
        }
        match plans[0] == plans[1] {
            true => Ok(Claim::Made),
            false => Err(format!("the second plan differs from the first: {plans:?}")),
        }
    }

    async fn apply(&mut self) -> Checked {
        let process = self.running().await?;
        self.attempts += 1;
        let task = self.task(Operation::Apply);
        for _ in 0..2 {
            let progress = self.progress(&process, Call::Apply { task: task.clone() }).await?;
            self.follow(&process, &task, progress).await?;
        }
        Ok(Claim::Made)
    }

    async fn drift(&self) -> Checked {
        if !self.description.can(Capability::DetectDrift) {
            return Ok(Claim::NotMade);
        }
        let process = self.running().await?;
        let answer = self.ask(&process, Call::DetectDrift { task: self.task(Operation::Apply) }).await?;
        match serde_json::from_value(answer)
            .map_err(|error| format!("DetectDrift: the answer is none: {error}"))?
        {
            Drift::None => Ok(Claim::Made),
            Drift::Found(what) => Err(format!("it found: {what}")),
        }
    }

    async fn outputs(&self) -> Checked {
        if !self.description.can(Capability::Outputs) {
            return Ok(Claim::NotMade);
        }
        let process = self.running().await?;
        let answer = self.ask(&process, Call::Outputs { task: self.task(Operation::Apply) }).await?;
        match answer.get("outputs").is_some_and(Value::is_object) {
            true => Ok(Claim::Made),
            false => Err(format!("the answer has no object outputs: {answer}")),
        }
    }

    async fn killed(&mut self) -> Checked {
        // The answer never arrives: whether it has begun is for the next process to find out.
        self.attempts += 1;
        let task = self.task(Operation::Apply);
        let process = self.running().await?;
        let dying = self.ask(&process, Call::Apply { task: task.clone() });
        let _ = futures::join!(dying, process.kill());
        let process = self.running().await?;
        let call = Call::Resume { task: task.clone(), checkpoint: None };
        let progress = self.progress(&process, call).await?;
        self.follow(&process, &task, progress).await?;

        // The answer was kept, and the process is another.
        self.attempts += 1;
        let task = self.task(Operation::Apply);
        let progress = self.progress(&process, Call::Apply { task: task.clone() }).await?;
        process.kill().await;
        let process = self.running().await?;
        self.follow(&process, &task, progress).await?;
        Ok(Claim::Made)
    }

    async fn cancel(&mut self) -> Checked {
        if !self.description.can(Capability::Cancel) {
            return Ok(Claim::NotMade);
        }
        let process = self.running().await?;
        self.attempts += 1;
        let task = self.task(Operation::Apply);
        let checkpoint = match self.progress(&process, Call::Apply { task: task.clone() }).await? {
            Progress::Running { checkpoint, .. } => Some(checkpoint),
            _ => None,
        };
        for checkpoint in [checkpoint, None] {
            self.ask(&process, Call::Cancel { task: task.clone(), checkpoint }).await?;
        }
        Ok(Claim::Made)
    }

    async fn destroy(&mut self) -> Checked {
        let process = self.running().await?;
        for _ in 0..2 {
            self.attempts += 1;
            let task = self.task(Operation::Destroy);
            let progress = self.progress(&process, Call::Destroy { task: task.clone() }).await?;
            self.follow(&process, &task, progress).await?;
        }
        Ok(Claim::Made)
    }

    async fn close(&self) -> Checked {
        let process = self.running().await?;
        process.stop().await;
        match process.gone() {
            Some(why) if why.contains("was killed") => Err(why),
            _ => Ok(Claim::Made),
        }
    }
}
