//! A server that answers as Amazon SQS does, and clients of queues that others wrote.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::process::{Launch, output};
use super::venv::Environment;
use super::{Cache, Folder, Process, ProcessError, Progress, Unavailable, free_port};

/// The part's name.
pub(crate) const NAME: &str = "queues";
/// As PyPI calls them: the server, and clients of SQS and of RabbitMQ.
const ENVIRONMENT: Environment = Environment {
    part: NAME,
    packages: &["moto[server]==5.2.5", "boto3", "pika==1.3.2"],
    program: "python3",
    version: &["-c", "import boto3, pika, moto; print(moto.__version__)"],
};
const DEADLINE: Duration = Duration::from_secs(90);

/// A Python that has clients of SQS (`boto3`) and of RabbitMQ (`pika`).
#[derive(Clone, Debug)]
pub struct Queues {
    /// The interpreter.
    pub python: PathBuf,
    /// The version of the server.
    pub version: String,
}

/// A running server, stopped when this is dropped.
pub struct Sqs {
    _server: Process,
    _folder: Folder,
    port: u16,
}

/// The clients in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when they were never installed.
pub fn queues() -> Result<Queues, Unavailable> {
    find(&Cache::of_user())
}

impl Queues {
    /// Runs a Python script with arguments to its end, and gives what it printed.
    ///
    /// # Errors
    /// What it wrote to its standard error when it failed.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Result<String, String> {
        output(Command::new(&self.python).arg("-c").arg(script).args(arguments))
    }

    /// A new server on loopback that answers as SQS does.
    ///
    /// # Errors
    /// When it does not start.
    pub fn sqs(&self) -> Result<Sqs, ProcessError> {
        let (folder, port) = (Folder::new()?, free_port()?);
        let mut server = Process::start(Launch {
            name: "moto",
            program: &self.python,
            args: ["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()].map(Into::into).into(),
            log: folder.path().join("moto.log"),
            stop: Signal::SIGKILL,
            account: None,
            env: Vec::new(),
        })?;
        server.wait_ready("an answer of moto", DEADLINE, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        })?;
        Ok(Sqs { _server: server, _folder: folder, port })
    }
}

impl Sqs {
    /// Where it answers.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

pub(crate) fn find(cache: &Cache) -> Result<Queues, Unavailable> {
    let (python, version) = ENVIRONMENT.find(cache)?;
    Ok(Queues { python, version })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    ENVIRONMENT.install(cache, progress)
}
