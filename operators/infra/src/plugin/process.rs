//! One process of a plugin, from its start to its end.
//!
//! ```text
//!   call ──▶ writer ──▶ stdin ┐
//!                             │ the plugin, a process group of its own
//!   pending ◀─ reader ◀ stdout┤
//!   the log ◀─────────── stderr┘
//! ```
//! Whatever goes wrong (the process ends, hangs, writes nonsense or without end) ends the
//! process group and is told to everybody who waits for an answer.

use std::collections::{HashMap, VecDeque};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::ProcessOptions;
use super::line::{self, LineError};
use super::wire::{Call, Fault, Log, Request, Said};

/// Lines of standard error that are kept for the message about a crash.
const LAST_WORDS: usize = 5;
/// The longest line of standard error that is read as one.
const LONGEST_WORDS: usize = 8 << 10;
/// How many requests may wait to be written.
const WAITING: usize = 64;
/// Environment variables that a plugin gets from the operator's own; secrets are not among them.
const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE"];

/// A plugin's process. Ends, with everything it started, when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    requests: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
    close: CancellationToken,
    kill: CancellationToken,
    pid: Option<u32>,
    _supervisor: AbortOnDropHandle<()>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum CallError {
    /// The plugin said no.
    #[error("{}", .0.message)]
    Fault(Fault),
    /// The process is gone; the sentence says why.
    #[error("{0}")]
    Gone(String),
    /// It did not answer in time, and was ended.
    #[error("it did not answer {method} within {seconds} s, and was ended")]
    Late {
        /// Which question.
        method: &'static str,
        /// How long it had.
        seconds: u64,
    },
}

#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<u64, oneshot::Sender<Result<Value, CallError>>>,
    /// Why the process is gone, once it is.
    gone: Option<String>,
    last_words: VecDeque<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    /// Starts the program. That it runs says nothing yet about whether it is a plugin.
    pub(super) fn start(name: &str, options: &ProcessOptions) -> Result<Self, String> {
        let (program, arguments) = options.command.split_first().ok_or("its command is empty")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("STEERSMAN_PLUGIN_CONTRACT", crate::action::CONTRACT)
            .envs(&options.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(format!("{program} has no standard input and output"));
        };
        let shared = Arc::new(Shared::default());
        let (requests, queue) = mpsc::channel(WAITING);
        let (tell_end, ended) = watch::channel(false);
        let (close, kill) = (CancellationToken::new(), CancellationToken::new());
        let pid = child.id();
        let supervisor = Supervisor {
            name: name.to_owned(),
            shared: Arc::clone(&shared),
            longest_line: options.longest_line,
            grace: options.stop_timeout,
            close: close.clone(),
            kill: kill.clone(),
        };
        let group = Group(pid.and_then(|pid| i32::try_from(pid).ok()));
        let task = tokio::spawn(async move {
            supervisor.run(child, group, stdin, stdout, stderr, queue).await;
            let _ = tell_end.send(true);
        });
        Ok(Self { requests, shared, ended, close, kill, pid, _supervisor: AbortOnDropHandle::new(task) })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Why it is gone, if it is.
    pub(super) fn gone(&self) -> Option<String> {
        self.shared.lock().gone.clone()
    }

    /// Asks, and waits for the answer.
    pub(super) async fn call(&self, call: Call, patience: Duration) -> Result<Value, CallError> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed) + 1;
        let method = call.method();
        let mut line = serde_json::to_vec(&Request { id, call })
            .map_err(|error| CallError::Gone(format!("the request cannot be written: {error}")))?;
        line.push(b'\n');
        self.send(id, method, line, patience).await
    }

    /// The same with a line that is ready.
    pub(super) async fn send(
        &self,
        id: u64,
        method: &'static str,
        line: Vec<u8>,
        patience: Duration,
    ) -> Result<Value, CallError> {
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if let Some(why) = &state.gone {
                return Err(CallError::Gone(why.clone()));
            }
            state.pending.insert(id, tell);
        }
        let exchange = async {
            // If nobody takes requests any more, the reader is about to say why.
            let _ = self.requests.send(line).await;
            told.await.unwrap_or_else(|_| Err(CallError::Gone("it was ended".into())))
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                self.shared.lock().pending.remove(&id);
                self.kill.cancel();
                Err(CallError::Late { method, seconds: patience.as_secs() })
            }
        }
    }

    /// A number for a request of one's own.
    pub(super) fn number(&self) -> u64 {
        self.shared.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Closes the plugin's input, as a sign to end, and waits until it has. One that does not is
    /// killed.
    pub(super) async fn stop(&self) {
        self.close.cancel();
        // An error means that the supervisor is gone, and the process with it.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Kills it, and waits until it is gone.
    pub(super) async fn kill(&self) {
        self.kill.cancel();
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

/// A process group that does not outlive this.
struct Group(Option<i32>);

impl Group {
    fn end(&self) {
        if let Some(group) = self.0 {
            // Nobody left in it is what we want.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

struct Supervisor {
    name: String,
    shared: Arc<Shared>,
    longest_line: usize,
    grace: Duration,
    close: CancellationToken,
    kill: CancellationToken,
}

impl Supervisor {
    async fn run(
        self,
        mut child: Child,
        group: Group,
        stdin: ChildStdin,
        stdout: ChildStdout,
        stderr: ChildStderr,
        queue: mpsc::Receiver<Vec<u8>>,
    ) {
        let writer = write(stdin, queue, self.close.clone());
        let listener = self.listen(stderr);
        let why = {
            let mut helpers = std::pin::pin!(async { tokio::join!(writer, listener) });
            let mut reader = std::pin::pin!(self.read(stdout));
            let closed = async {
                self.close.cancelled().await;
                tokio::time::sleep(self.grace).await;
            };
            let mut closed = std::pin::pin!(closed);
            let mut working = true;
            loop {
                tokio::select! {
                    why = reader.as_mut() => break why,
                    () = self.kill.cancelled() => break "it was ended".to_owned(),
                    () = closed.as_mut() => break "it did not end when its input was closed, and was killed".to_owned(),
                    _ = helpers.as_mut(), if working => working = false,
                }
            }
        };
        // Output that ends, ends the process: give it a moment to say how.
        let waited = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        group.end();
        let status = match waited {
            Ok(status) => status.ok(),
            Err(_) => child.wait().await.ok(),
        };
        let mut state = self.shared.lock();
        let how = status.map_or_else(String::new, |status| format!(" ({status})"));
        let words: Vec<String> = state.last_words.drain(..).collect();
        let words =
            if words.is_empty() { String::new() } else { format!("; its last words: {}", words.join(" / ")) };
        let why = format!("{why}{how}{words}");
        tracing::info!(plugin = self.name, why, "the plugin's process has ended");
        state.gone = Some(why.clone());
        for (_, waiting) in state.pending.drain() {
            let _ = waiting.send(Err(CallError::Gone(why.clone())));
        }
    }

    /// Hands answers to those who wait for them, until something is wrong; returns what.
    async fn read(&self, stdout: ChildStdout) -> String {
        let mut from = BufReader::new(stdout);
        loop {
            let line = match line::read(&mut from, self.longest_line).await {
                Ok(line) => line,
                Err(LineError::End) => return "it ended".into(),
                Err(error) => return error.to_string(),
            };
            match Said::read(&line) {
                Err(why) => return format!("it wrote a line that {why}"),
                Ok(Said::Log(log)) => self.log(&log),
                Ok(Said::Answer(id, answer)) => {
                    let waiting = self.shared.lock().pending.remove(&id);
                    match waiting {
                        Some(waiting) => {
                            let _ = waiting.send(answer.map_err(CallError::Fault));
                        }
                        None => {
                            return format!(
                                "it answered request {id}, which nobody asked or which it has answered before"
                            );
                        }
                    }
                }
            }
        }
    }

    fn log(&self, log: &Log) {
        let (plugin, message) = (&self.name, &log.message);
        match log.level.as_str() {
            "error" => tracing::error!(plugin, "{message}"),
            "warn" => tracing::warn!(plugin, "{message}"),
            "debug" => tracing::debug!(plugin, "{message}"),
            _ => tracing::info!(plugin, "{message}"),
        }
    }

    async fn listen(&self, stderr: ChildStderr) {
        let mut from = BufReader::new(stderr);
        while let Ok(line) = line::read(&mut from, LONGEST_WORDS).await {
            let text = String::from_utf8_lossy(&line).into_owned();
            tracing::info!(plugin = self.name, "{text}");
            let mut state = self.shared.lock();
            state.last_words.push_back(text);
            if state.last_words.len() > LAST_WORDS {
                state.last_words.pop_front();
            }
        }
        // One endless line, or the end: what follows is drained, or the plugin would block.
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
}

/// Writes requests until there are no more, or the input is to be closed; then closes it.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>, close: CancellationToken) {
    loop {
        let line = tokio::select! {
            line = queue.recv() => line,
            () = close.cancelled() => None,
        };
        let Some(line) = line else { return };
        // A plugin that has ended is reported by the reader.
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}
