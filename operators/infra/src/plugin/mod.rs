//! Plugins in a process of their own, in any language.
//!
//! The operator starts the program that its settings name, speaks lines of JSON with it
//! ([`wire`]), and starts it again when it ends:
//!
//! ```text
//!   PLUGIN_CONFIGS={"dns": {"command": ["python3", "dns.py"], "zone": "example.com"}}
//!
//!   absent ── first call ──▶ starting ── Describe, Configure ──▶ running
//!      ▲                         │ no answer, another contract      │ ends, hangs, nonsense
//!      └──── after 1, 2, 4 … 60 s ◀──────────────────────────────────┘
//! ```
//! Nothing that a plugin does can make the operator wait without end, grow without bound or end
//! itself. What a plugin was doing when it went is asked of the next one by `Resume`.
//! [`conformance`] checks a plugin against all of this.

pub mod conformance;
mod line;
mod process;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use self::process::{CallError, Process};
use self::wire::{Call, Hello, Introduction};
use crate::action::{Action, ActionError, Answer, Capability, Description, Drift, Plan, Progress, Task};

/// The longest time between two attempts to start a plugin.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How large a checkpoint may be: it is kept in the resource's status.
const LARGEST_CHECKPOINT: usize = 64 << 10;

/// How a plugin's process is run. Read from the operator's settings only; resources cannot name
/// programs.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables beside `PATH`, `HOME` and the like.
    pub environment: BTreeMap<String, String>,
    /// How long the program may take to introduce itself. 10 seconds.
    pub start_timeout: Duration,
    /// How long an answer may take; what takes longer belongs into `running` and `Resume`. 60 seconds.
    pub call_timeout: Duration,
    /// How long the program may take to end once its input is closed. 5 seconds.
    pub stop_timeout: Duration,
    /// The longest line that is read. 4 MiB.
    pub longest_line: usize,
}

impl ProcessOptions {
    /// The defaults for a program.
    pub fn new(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            environment: BTreeMap::new(),
            start_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(5),
            longest_line: 4 << 20,
        }
    }

    /// Takes what is about the process out of a plugin's settings; nothing if they name no
    /// command. What is left is for the plugin.
    ///
    /// # Errors
    /// When a setting has a value that it cannot have.
    pub fn take_from(settings: &mut Map<String, Value>) -> Result<Option<Self>, String> {
        #[derive(Deserialize)]
        struct Settings {
            command: Vec<String>,
            #[serde(default)]
            environment: BTreeMap<String, String>,
            start_timeout_seconds: Option<f64>,
            call_timeout_seconds: Option<f64>,
        }
        const NAMES: [&str; 4] = ["command", "environment", "start_timeout_seconds", "call_timeout_seconds"];
        if !settings.contains_key("command") {
            return Ok(None);
        }
        let taken: Map<String, Value> =
            NAMES.iter().filter_map(|name| settings.remove_entry(*name)).collect();
        let read: Settings =
            serde_json::from_value(Value::Object(taken)).map_err(|error| error.to_string())?;
        if read.command.is_empty() {
            return Err("command is empty; it should be a list of program and arguments".into());
        }
        let mut options = Self { environment: read.environment, ..Self::new(read.command) };
        for (given, option) in [
            (read.start_timeout_seconds, &mut options.start_timeout),
            (read.call_timeout_seconds, &mut options.call_timeout),
        ] {
            if let Some(given) = given {
                let seconds = Duration::try_from_secs_f64(given).ok().filter(|it| !it.is_zero());
                *option = seconds.ok_or_else(|| format!("{given} is no number of seconds above 0"))?;
            }
        }
        Ok(Some(options))
    }
}

/// A plugin in a process of its own.
#[derive(Clone, Debug)]
pub struct ProcessPlugin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    options: ProcessOptions,
    settings: Map<String, Value>,
    slot: Mutex<Slot>,
    /// What the plugin said when it was last started.
    known: RwLock<Description>,
    /// For plugins that answer one call at a time.
    turn: Semaphore,
}

/// The process, if there is one.
#[derive(Debug, Default)]
struct Slot {
    process: Option<Arc<Process>>,
    /// How often in a row starting it, or keeping it, has failed.
    failures: u32,
    again: Option<(Instant, String)>,
}

impl ProcessPlugin {
    /// A plugin under the name that resources use. Nothing is started before it is asked for.
    pub fn new(name: &str, options: ProcessOptions, settings: Map<String, Value>) -> Self {
        let known = RwLock::new(Description::new(name, "", []));
        let (slot, turn) = (Mutex::default(), Semaphore::new(1));
        Self(Arc::new(Inner { name: name.to_owned(), options, settings, slot, known, turn }))
    }

    /// The id of its process, while it has one.
    pub async fn pid(&self) -> Option<u32> {
        self.0.slot.lock().await.process.as_ref().filter(|process| process.gone().is_none())?.pid()
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T, ActionError> {
        let process = self.0.process().await?;
        let patience = self.0.options.call_timeout;
        let one_at_a_time = !self.describe().can(Capability::Concurrent);
        let turn = async {
            match one_at_a_time {
                true => self.0.turn.acquire().await.ok(),
                false => None,
            }
        };
        let Ok(_turn) = tokio::time::timeout(patience, turn).await else {
            return Err(self
                .0
                .transient(&format!("it is busy with another call for more than {patience:?}")));
        };
        let (method, acts) = (call.method(), call.acts());
        let answer = match process.call(call, patience).await {
            Ok(answer) => answer,
            Err(CallError::Fault(fault)) => {
                self.0.is_well().await;
                return Err(fault.into());
            }
            Err(error) => {
                self.0.failed(&process, &error.to_string()).await;
                let message = format!("the plugin {}: {error}", self.0.name);
                return Err(if acts {
                    ActionError::Unknown(message)
                } else {
                    ActionError::transient(message)
                });
            }
        };
        self.0.is_well().await;
        serde_json::from_value(answer).map_err(|error| {
            let message =
                format!("the plugin {} gave an answer to {method} that is none: {error}", self.0.name);
            if acts { ActionError::Unknown(message) } else { ActionError::Permanent(message) }
        })
    }

    async fn progress(&self, call: Call) -> Result<Progress, ActionError> {
        let progress: Progress = self.ask(call).await?;
        if let Progress::Running { checkpoint, .. } = &progress {
            let size = checkpoint.to_string().len();
            if size > LARGEST_CHECKPOINT {
                return Err(ActionError::Unknown(format!(
                    "the plugin {} wants to keep a checkpoint of {size} bytes; it may have {LARGEST_CHECKPOINT}",
                    self.0.name
                )));
            }
        }
        Ok(progress)
    }
}

impl Inner {
    fn transient(&self, why: &str) -> ActionError {
        ActionError::transient(format!("the plugin {}: {why}", self.name))
    }

    /// The running process; starts one if there is none, but not too often.
    async fn process(&self) -> Result<Arc<Process>, ActionError> {
        let mut slot = self.slot.lock().await;
        if let Some(process) = &slot.process {
            match process.gone() {
                None => return Ok(Arc::clone(process)),
                // It ended while nobody waited for an answer.
                Some(why) => slot.fail(why),
            }
        }
        if let Some((again, why)) = &slot.again
            && let Some(wait) = again.checked_duration_since(Instant::now()).filter(|it| !it.is_zero())
        {
            // The same words as when it failed: they stand in the status of resources, which should
            // not change with every look.
            let message = format!("the plugin {}: {why}", self.name);
            return Err(ActionError::Transient { message, retry_after: Some(wait) });
        }
        match self.start().await {
            Ok(process) => {
                let process = Arc::new(process);
                slot.process = Some(Arc::clone(&process));
                Ok(process)
            }
            Err(error) => {
                slot.fail(error.to_string());
                Err(match error {
                    ActionError::Permanent(why) => {
                        ActionError::Permanent(format!("the plugin {}: {why}", self.name))
                    }
                    other => self.transient(&other.to_string()),
                })
            }
        }
    }

    async fn start(&self) -> Result<Process, ActionError> {
        let process = Process::start(&self.name, &self.options).map_err(ActionError::transient)?;
        let said = |error: CallError| match error {
            CallError::Fault(fault) => fault.into(),
            other => ActionError::transient(other.to_string()),
        };
        let patience = self.options.start_timeout;
        let introduction = process.call(Call::Describe(Hello::ours()), patience).await.map_err(said)?;
        let introduction: Introduction = serde_json::from_value(introduction).map_err(|error| {
            ActionError::permanent(format!("it does not introduce itself as a plugin: {error}"))
        })?;
        let known = introduction.understand(&self.name).map_err(ActionError::Permanent)?;
        process.call(Call::Configure { settings: self.settings.clone() }, patience).await.map_err(said)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(process)
    }

    /// A process that did not answer is not asked again.
    async fn failed(&self, process: &Arc<Process>, why: &str) {
        let mut slot = self.slot.lock().await;
        if slot.process.as_ref().is_some_and(|current| Arc::ptr_eq(current, process)) {
            slot.fail(why.to_owned());
        }
    }

    async fn is_well(&self) {
        let mut slot = self.slot.lock().await;
        (slot.failures, slot.again) = (0, None);
    }
}

impl Slot {
    fn fail(&mut self, why: String) {
        self.process = None;
        let pause = Duration::from_secs(1).saturating_mul(1 << self.failures.min(6)).min(LONGEST_PAUSE);
        // A first failure is often a restart for good reasons: the next call may try at once.
        let pause = if self.failures == 0 { Duration::ZERO } else { pause };
        self.failures = self.failures.saturating_add(1);
        self.again = Some((Instant::now() + pause, why));
    }
}

impl Action for ProcessPlugin {
    fn describe(&self) -> Description {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn configure(&self) -> Answer<'_, Description> {
        Box::pin(async move {
            self.0.process().await?;
            Ok(self.describe())
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let process = self.0.slot.lock().await.process.take();
            if let Some(process) = process {
                process.stop().await;
            }
        })
    }

    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()> {
        Box::pin(async move { self.ask::<Value>(Call::Validate { task: task.clone() }).await.map(drop) })
    }

    fn plan<'a>(&'a self, task: &'a Task) -> Answer<'a, Plan> {
        Box::pin(self.ask(Call::Plan { task: task.clone() }))
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(self.progress(Call::Apply { task: task.clone() }))
    }

    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(self.progress(Call::Destroy { task: task.clone() }))
    }

    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(self.progress(Call::Resume { task: task.clone(), checkpoint: checkpoint.cloned() }))
    }

    fn detect_drift<'a>(&'a self, task: &'a Task) -> Answer<'a, Drift> {
        Box::pin(self.ask(Call::DetectDrift { task: task.clone() }))
    }

    fn outputs<'a>(&'a self, task: &'a Task) -> Answer<'a, Map<String, Value>> {
        #[derive(Deserialize)]
        struct Told {
            outputs: Map<String, Value>,
        }
        Box::pin(async move { Ok(self.ask::<Told>(Call::Outputs { task: task.clone() }).await?.outputs) })
    }

    fn cancel<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, ()> {
        let call = Call::Cancel { task: task.clone(), checkpoint: checkpoint.cloned() };
        Box::pin(async move { self.ask::<Value>(call).await.map(drop) })
    }
}
