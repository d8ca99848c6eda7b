//! The `terraform` plugin: a module of the operator's, applied once per resource.
//!
//! The operator has a folder of modules; `module` in the configuration names one of them, by
//! default the type's name in lower case. Each resource has a folder of its own with a copy of
//! the module, its parameters as `terraform.tfvars.json`, and its state, unless the module has
//! another backend: `backend` in the configuration has its settings, such as
//! `{"conn_str": "postgres://…", "schema_name": "{{ uid }}"}` for `pg`.
//!
//! Terraform runs in a process group of its own and writes to files: it outlives an operator that
//! is killed, finishes what it began, and keeps its lock meanwhile. The next operator applies
//! again, which waits for the lock and changes what is still to be changed.

mod said;
mod workspace;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio_util::task::TaskTracker;

use self::said::{counts, failure, tail};
use self::workspace::{backend_file, configuration, is_folder, refresh};
use super::{
    Action, ActionError, Answer, Capability, Completed, Description, Drift, Needed, Plan, Progress, Task,
};
use crate::types::{Operation, slug};

/// How long a run is waited for before the worker turns to something else.
const MOMENT: Duration = Duration::from_secs(2);
/// The settings of the backend, in a resource's folder.
const BACKEND: &str = ".backend.tfbackend";
/// What the folder was last initialised for; gone after a command that failed.
const INITIALISED: &str = ".initialised";

/// What the plugin needs.
#[derive(Clone, Debug)]
pub struct TerraformOptions {
    /// The program. `terraform`, found in the path; `tofu` does as well.
    pub program: PathBuf,
    /// The folder with one folder per module.
    pub modules: PathBuf,
    /// The folder for one folder per resource. Holds states: keep it.
    pub workspaces: PathBuf,
    /// How long one run may take before it is interrupted. One hour.
    pub timeout: Duration,
    /// How long an interrupted run may take to end in good order. One minute.
    pub grace: Duration,
    /// Further environment variables, such as credentials of providers.
    pub environment: Vec<(String, String)>,
}

impl TerraformOptions {
    /// The defaults, with these folders.
    pub fn new(modules: impl Into<PathBuf>, workspaces: impl Into<PathBuf>) -> Self {
        Self {
            program: "terraform".into(),
            modules: modules.into(),
            workspaces: workspaces.into(),
            timeout: Duration::from_secs(3600),
            grace: Duration::from_secs(60),
            environment: Vec::new(),
        }
    }
}

/// Runs Terraform.
#[derive(Clone, Debug)]
pub struct Terraform(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: TerraformOptions,
    /// Runs of this process, by attempt.
    runs: Mutex<HashMap<String, Run>>,
    tasks: TaskTracker,
}

/// A run of this process.
#[derive(Debug)]
enum Run {
    /// Under way, in this process group once there is one.
    Running(Option<i32>),
    /// Told to end. Once only: Terraform takes a second interrupt as an order to drop everything.
    Interrupted,
    /// Over.
    Over(Result<Completed, ActionError>),
}

/// What a command said.
struct Said {
    code: Option<i32>,
    text: String,
}

impl Terraform {
    /// The plugin.
    pub fn new(options: TerraformOptions) -> Self {
        Self(Arc::new(Inner { options, runs: Mutex::default(), tasks: TaskTracker::new() }))
    }

    /// Begins a run in the background, or finds the one that is under way, and waits a moment.
    async fn run(&self, task: &Task) -> Result<Progress, ActionError> {
        let begin = {
            let mut runs = self.0.lock();
            let begin = !runs.contains_key(&task.attempt);
            if begin {
                runs.insert(task.attempt.clone(), Run::Running(None));
            }
            begin
        };
        if begin {
            let (inner, task) = (Arc::clone(&self.0), task.clone());
            self.0.tasks.spawn(async move {
                let result = inner.carry_out(&task).await;
                inner.lock().insert(task.attempt.clone(), Run::Over(result));
            });
        }
        let deadline = tokio::time::Instant::now() + MOMENT;
        loop {
            if let Some(over) = self.0.take(&task.attempt) {
                return over.map(Progress::Done);
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(Progress::Running {
                    checkpoint: json!({"workspace": self.0.workspace(task)}),
                    after: MOMENT,
                    message: "terraform is at work".into(),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of a run that is over.
    fn take(&self, attempt: &str) -> Option<Result<Completed, ActionError>> {
        let mut runs = self.lock();
        match runs.get(attempt) {
            Some(Run::Over(_)) => match runs.remove(attempt) {
                Some(Run::Over(result)) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    fn module(&self, task: &Task) -> Result<PathBuf, ActionError> {
        let name = match task.config.get("module") {
            None => slug(&task.type_name),
            Some(Value::String(name)) if is_folder(name) => name.clone(),
            Some(other) => {
                return Err(ActionError::permanent(format!(
                    "{other} is not the name of a module; one is a plain folder name"
                )));
            }
        };
        let folder = self.options.modules.join(&name);
        match folder.is_dir() {
            true => Ok(folder),
            false => Err(ActionError::permanent(format!(
                "there is no Terraform module {name}: put its files into {}, or name another in plugin_config.module",
                folder.display()
            ))),
        }
    }

    fn workspace(&self, task: &Task) -> PathBuf {
        self.options.workspaces.join(slug(&task.uid))
    }

    /// Brings module and parameters into the resource's folder, and its providers.
    async fn prepare(&self, task: &Task) -> Result<PathBuf, ActionError> {
        let (module, workspace) = (self.module(task)?, self.workspace(task));
        let parameters = Value::Object(task.parameters.clone()).to_string();
        let copied = {
            let workspace = workspace.clone();
            tokio::task::spawn_blocking(move || {
                refresh(&module, &workspace, 0)?;
                std::fs::write(workspace.join("terraform.tfvars.json"), parameters)
            })
            .await
        };
        match copied {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(ActionError::transient(format!(
                    "{} cannot be prepared: {error}",
                    workspace.display()
                )));
            }
            Err(error) => return Err(ActionError::transient(error.to_string())),
        }
        let mut arguments = vec!["init".to_owned(), "-input=false".into(), "-no-color".into()];
        let mut settings = String::new();
        if let Some(backend) = task.config.get("backend").and_then(Value::as_object) {
            // A file, not arguments: those are for everybody to see.
            let text = backend_file(task, backend)?;
            let written = tokio::fs::write(workspace.join(BACKEND), &text).await;
            written.map_err(|error| ActionError::transient(format!("{BACKEND}: {error}")))?;
            arguments.extend([format!("-backend-config={BACKEND}"), "-reconfigure".into()]);
            settings = text;
        }
        // What was initialised for the same configuration needs not be again: every drift check
        // would do it.
        let stamp = workspace.join(INITIALISED);
        let known = tokio::fs::read_to_string(&stamp).await.ok();
        if known.is_none() || known != configuration(&workspace, &settings).await {
            self.succeed(task, &workspace, &arguments).await?;
            // Only now are the versions of the providers there.
            if let Some(digest) = configuration(&workspace, &settings).await {
                // Without it the next command initialises once more.
                let _ = tokio::fs::write(&stamp, digest).await;
            }
        }
        Ok(workspace)
    }

    async fn carry_out(&self, task: &Task) -> Result<Completed, ActionError> {
        let workspace = self.prepare(task).await?;
        let verb = match task.operation {
            Operation::Apply => "apply",
            Operation::Destroy => "destroy",
        };
        let arguments =
            [verb, "-input=false", "-no-color", "-auto-approve", "-lock-timeout=60s"].map(ToOwned::to_owned);
        let text = self.succeed(task, &workspace, &arguments).await?;
        let changes = Some(counts(&text));
        if task.operation == Operation::Destroy {
            // Nothing is left that the state could tell about.
            let removed = tokio::fs::remove_dir_all(&workspace).await;
            removed
                .map_err(|error| ActionError::transient(format!("{} stays: {error}", workspace.display())))?;
            return Ok(Completed { changes, text, ..Completed::default() });
        }
        let outputs = self.outputs(task, &workspace).await?;
        Ok(Completed { outputs, changes, text, last_run: None })
    }

    async fn outputs(&self, task: &Task, workspace: &Path) -> Result<Map<String, Value>, ActionError> {
        let arguments = ["output", "-json", "-no-color"].map(ToOwned::to_owned);
        let outputs = self.succeed(task, workspace, &arguments).await?;
        let outputs: Map<String, Value> = serde_json::from_str(&outputs)
            .map_err(|error| ActionError::transient(format!("terraform output: {error}")))?;
        let outputs = outputs.into_iter().map(|(name, output)| {
            let secret = output.get("sensitive") == Some(&Value::Bool(true));
            let value = if secret { json!("***") } else { output.get("value").cloned().unwrap_or_default() };
            (name, value)
        });
        Ok(outputs.collect())
    }

    async fn succeed(
        &self,
        task: &Task,
        workspace: &Path,
        arguments: &[String],
    ) -> Result<String, ActionError> {
        let said = self.command(task, workspace, arguments).await?;
        match said.code {
            Some(0) => Ok(said.text),
            code => Err(failure(&arguments[0], code, &said.text)),
        }
    }

    /// Runs a command to its end. One that takes too long is interrupted, so that it can write
    /// its state, and killed only if that does not help.
    async fn command(
        &self,
        task: &Task,
        workspace: &Path,
        arguments: &[String],
    ) -> Result<Said, ActionError> {
        let what = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => ActionError::permanent(format!(
                "{} is not there; install Terraform, or set the program of the terraform plugin",
                self.options.program.display()
            )),
            _ => ActionError::transient(format!("{}: {error}", self.options.program.display())),
        };
        // Files, not pipes: a pipe would break with this process, and Terraform with it.
        let log = workspace.join(format!(".{}.log", arguments[0]));
        let out = std::fs::File::create(&log).map_err(what)?;
        let err = out.try_clone().map_err(what)?;
        let mut child = Command::new(&self.options.program)
            .args(arguments)
            .current_dir(workspace)
            .env("TF_IN_AUTOMATION", "1")
            .env("TF_INPUT", "0")
            .env("CHECKPOINT_DISABLE", "1")
            .envs(self.options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(if arguments[0] == "output" { Stdio::null() } else { Stdio::from(err) })
            .process_group(0)
            .spawn()
            .map_err(what)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        match self.lock().get_mut(&task.attempt) {
            Some(Run::Running(at)) => *at = group,
            // Between two commands, or while this one was being started.
            Some(Run::Interrupted) => signal(group, Signal::SIGINT),
            _ => {}
        }
        let ended = match tokio::time::timeout(self.options.timeout, child.wait()).await {
            Ok(ended) => ended,
            Err(_) => {
                signal(group, Signal::SIGINT);
                match tokio::time::timeout(self.options.grace, child.wait()).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        signal(group, Signal::SIGKILL);
                        child.wait().await
                    }
                }
            }
        };
        let code = ended.map_err(what)?.code();
        if !matches!(code, Some(0 | 2)) {
            // Perhaps because a provider is not there any more: the next command gets it again.
            let _ = tokio::fs::remove_file(workspace.join(INITIALISED)).await;
        }
        let text = tokio::fs::read(&log).await.map_err(what)?;
        Ok(Said { code, text: String::from_utf8_lossy(&text).into_owned() })
    }

    async fn plan(&self, task: &Task, kind: Option<&str>) -> Result<Said, ActionError> {
        let workspace = self.prepare(task).await?;
        let mut arguments: Vec<String> =
            ["plan", "-input=false", "-no-color", "-detailed-exitcode", "-lock-timeout=60s"]
                .map(Into::into)
                .into();
        arguments.extend(kind.map(ToOwned::to_owned));
        let said = self.command(task, &workspace, &arguments).await?;
        match said.code {
            Some(0 | 2) => Ok(said),
            code => Err(failure("plan", code, &said.text)),
        }
    }
}

impl Action for Terraform {
    fn describe(&self) -> Description {
        Description::new(
            "terraform",
            "1.0.0",
            [Capability::Plan, Capability::DetectDrift, Capability::Cancel, Capability::Outputs],
        )
    }

    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()> {
        Box::pin(std::future::ready(self.0.module(task).map(|_| ())))
    }

    fn plan<'a>(&'a self, task: &'a Task) -> Answer<'a, Plan> {
        Box::pin(async move {
            let kind = (task.operation == Operation::Destroy).then_some("-destroy");
            let said = self.0.plan(task, kind).await?;
            // One that has nothing to destroy still has a folder to clear.
            let idle = said.code == Some(0) && task.operation == Operation::Apply;
            let needed = if idle { Needed::No } else { Needed::Yes };
            Ok(Plan { needed, changes: counts(&said.text), text: tail(&said.text) })
        })
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(self.run(task))
    }

    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(self.run(task))
    }

    /// Applying again is the same as going on: the state knows what is done.
    fn resume<'a>(&'a self, task: &'a Task, _: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(async move {
            match self.run(task).await {
                // Here an error would mean "ask again"; the run has ended.
                Err(ActionError::Transient { message, .. }) => {
                    Ok(Progress::Failed { message, last_run: None })
                }
                other => other,
            }
        })
    }

    fn detect_drift<'a>(&'a self, task: &'a Task) -> Answer<'a, Drift> {
        Box::pin(async move {
            let said = self.0.plan(task, Some("-refresh-only")).await?;
            Ok(match said.code {
                Some(2) => Drift::Found(tail(&said.text)),
                _ => Drift::None,
            })
        })
    }

    /// Asked after a plan, which has prepared the folder.
    fn outputs<'a>(&'a self, task: &'a Task) -> Answer<'a, Map<String, Value>> {
        Box::pin(async move { self.0.outputs(task, &self.0.workspace(task)).await })
    }

    /// Interrupts a run, and waits until it has written its state.
    fn cancel<'a>(&'a self, task: &'a Task, _: Option<&'a Value>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut runs = self.0.lock();
            match runs.get_mut(&task.attempt) {
                None => return Ok(()),
                Some(Run::Over(_)) => {
                    runs.remove(&task.attempt);
                    return Ok(());
                }
                Some(Run::Interrupted) => {}
                Some(run) => {
                    if let Run::Running(group) = std::mem::replace(run, Run::Interrupted) {
                        signal(group, Signal::SIGINT);
                    }
                }
            }
            Err(ActionError::transient("terraform was interrupted and is about to end"))
        })
    }
}

fn signal(group: Option<i32>, signal: Signal) {
    if let Some(group) = group {
        // It may have ended by itself a moment ago.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}
