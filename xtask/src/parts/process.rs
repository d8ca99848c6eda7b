//! Child processes that never outlive the test that started them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How long a process may take to end after it was asked to, before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How often a condition is looked at while waiting for it.
const POLL: Duration = Duration::from_millis(50);
/// How much of a log an error message carries.
const LOG_TAIL_LINES: usize = 15;

/// What can go wrong with a part that is there.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A file, a certificate or a port for it could not be prepared.
    #[error("{0}")]
    Setup(String),
    /// The program could not be started at all.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// Which program.
        program: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// It ended when it should have gone on running.
    #[error("{name} ended ({status}); the end of its log:\n{log}")]
    Ended {
        /// Which process.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it wrote.
        log: String,
    },
    /// It runs and did not become ready in time.
    #[error("{what} was not reached within {seconds} s: {last}\n{log}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// What the last attempt said.
        last: String,
        /// The last lines of the log of the process that was waited for.
        log: String,
    },
}

impl ProcessError {
    pub(crate) fn setup(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Setup(format!("{what}: {error}"))
    }
}

/// A running program with a log file, stopped when this is dropped.
///
/// It is stopped too when the process that started it is killed: the kernel sends it the stop
/// signal (through `setpriv --pdeathsig` of util-linux; without that program only dropping
/// stops it). The kernel counts a *thread* as the parent, and test threads end before shared
/// parts should, so each process has a thread that does nothing but live as long as it does.
pub struct Process {
    name: String,
    log: PathBuf,
    stop: Signal,
    child: Child,
    /// Closing this channel ends the parent thread; see above.
    parent: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// How a [`Process`] is started.
pub(crate) struct Launch<'a> {
    pub(crate) name: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<String>,
    pub(crate) log: PathBuf,
    /// The signal that makes it end at once and leave nothing behind.
    pub(crate) stop: Signal,
    /// Who to run as, where we are root and the program refuses to be.
    pub(crate) account: Option<&'a Account>,
    pub(crate) env: Vec<(String, String)>,
}

/// An unprivileged user of this system.
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// Makes the command run as this user, in no other groups than its own.
    pub(crate) fn own(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

impl Process {
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self, ProcessError> {
        let log = File::create(&launch.log)
            .map_err(ProcessError::setup(format!("creating {}", launch.log.display())))?;
        let errors = log.try_clone().map_err(ProcessError::setup("sharing the log file"))?;
        let mut command = guarded(&launch);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let started_in = launch.program.display().to_string();
        let (parent, until) = mpsc::channel::<()>();
        let (send_child, child) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("parent of {}", launch.name))
            .spawn(move || {
                if send_child.send(command.spawn()).is_ok() {
                    // Ends with an error when the sender is dropped, which is what we wait for.
                    let _ = until.recv();
                }
            })
            .map_err(ProcessError::setup("starting a thread"))?;
        let child = child
            .recv()
            .map_err(|_| ProcessError::Setup("the thread of a process ended early".into()))?
            .map_err(|reason| ProcessError::Start { program: started_in, reason })?;
        Ok(Self {
            name: launch.name.to_owned(),
            log: launch.log,
            stop: launch.stop,
            child,
            parent: Some(parent),
            thread: Some(thread),
        })
    }

    /// Its process id, which is also its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// An error when it has ended.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] with the end of its log.
    pub fn still_running(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(ProcessError::Ended { name: self.name.clone(), status, log: tail(&self.log) })
            }
            Err(error) => Err(ProcessError::Setup(format!("waiting for {}: {error}", self.name))),
        }
    }

    /// Waits until `attempt` succeeds, and gives up when the process ends or time is over.
    pub(crate) fn wait_ready(
        &mut self,
        what: &str,
        deadline: Duration,
        mut attempt: impl FnMut() -> Result<(), String>,
    ) -> Result<(), ProcessError> {
        let mut ended = None;
        let outcome = wait_until(deadline, || {
            if let Err(error) = self.still_running() {
                ended = Some(error);
                return Ok(());
            }
            attempt()
        });
        match (ended, outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(last)) => Err(ProcessError::Timeout {
                what: what.to_owned(),
                seconds: deadline.as_secs(),
                last,
                log: tail(&self.log),
            }),
        }
    }

    /// Ends it at once, without a word.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// The same, for one that is replaced.
    pub(crate) fn end(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The only failure is that nobody is left to be signalled.
            let _ = killpg(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(self.stop);
            let ended = wait_until(STOP_GRACE, || match self.child.try_wait() {
                Ok(None) => Err(String::new()),
                _ => Ok(()),
            });
            if ended.is_err() {
                self.signal(Signal::SIGKILL);
                let _ = self.child.wait();
            }
        }
        self.parent.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The command, wrapped so that the kernel stops it when we die.
fn guarded(launch: &Launch<'_>) -> Command {
    let mut command = match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            // setpriv wants the signal's name without SIG.
            command.args(["--pdeathsig", launch.stop.as_str().trim_start_matches("SIG")]);
            command.arg("--").arg(launch.program);
            command
        }
        None => Command::new(launch.program),
    };
    if let Some(account) = launch.account {
        account.own(&mut command);
    }
    command.args(&launch.args).envs(launch.env.iter().cloned());
    command
}

/// The first executable of this name in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs a program to its end and gives its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
    Err(format!("{program} failed ({}): {last}", output.status))
}

/// A TCP port on 127.0.0.1 that was free a moment ago.
///
/// # Errors
/// When the machine has none left.
pub fn free_port() -> Result<u16, ProcessError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(ProcessError::setup("looking for a free port on 127.0.0.1"))
}

/// Waits until `attempt` succeeds.
///
/// # Errors
/// What the last attempt said, when the time is over.
pub fn wait_until(deadline: Duration, mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let end = Instant::now() + deadline;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(last) if Instant::now() >= end => return Err(last),
            Err(_) => thread::sleep(POLL),
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(script: &str, folder: &Path) -> Process {
        Process::start(Launch {
            name: "script",
            program: Path::new("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            log: folder.join("script.log"),
            stop: Signal::SIGKILL,
            account: None,
            env: Vec::new(),
        })
        .expect("started")
    }

    fn alive(pid: u32) -> bool {
        // A zombie has no command line any more, and a process that is just becoming another
        // program has none yet.
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
    }

    #[test]
    fn a_dropped_process_takes_its_children_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = launch("sleep 600 & echo $!; wait", folder.path());
        let log = process.log().to_path_buf();
        let mut child = 0;
        process
            .wait_ready("the child's pid", Duration::from_secs(20), || {
                let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
                child = text.trim().parse().map_err(|_| format!("log is {text:?}"))?;
                Ok(())
            })
            .expect("ready");
        let pid = process.pid();
        wait_until(Duration::from_secs(20), || match alive(pid) && alive(child) {
            true => Ok(()),
            false => Err(format!("{pid} or {child} is not alive")),
        })
        .expect("both are alive");
        drop(process);
        assert!(!alive(pid));
        wait_until(Duration::from_secs(20), || match alive(child) {
            true => Err(format!("{child} is alive")),
            false => Ok(()),
        })
        .expect("gone");
    }

    #[test]
    fn a_process_outlives_the_thread_that_started_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_path_buf();
        let mut process = thread::spawn(move || launch("exec sleep 600", &path)).join().expect("joined");
        // The signal of a parent's death is sent before the thread's id is free again, so one
        // round through the scheduler is enough to see it.
        let still = wait_until(Duration::from_millis(200), || {
            Err(process.still_running().err().map_or_else(String::new, |error| error.to_string()))
        });
        assert_eq!(still, Err(String::new()));
    }

    #[test]
    fn a_process_that_ends_early_is_an_error_with_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = launch("echo no disk; exit 3", folder.path());
        let error = process
            .wait_ready("readiness", Duration::from_secs(20), || Err("not yet".into()))
            .expect_err("it ended");
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("no disk"), "{text}");
    }
}
