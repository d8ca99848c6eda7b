//! A RabbitMQ broker of its own for a test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::process::{Launch, find_program, is_executable, output};
use super::{Cache, Folder, Process, ProcessError, Progress, Unavailable, debian, free_port};

/// The part's name.
pub(crate) const NAME: &str = "rabbitmq";
const PACKAGE: &str = "rabbitmq-server";
/// Erlang takes its time on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);
/// Erlang's nodes find each other through a daemon; ours is of the same process group as the
/// broker, and on a port of its own.
const SCRIPT: &str = "epmd & exec \"$0\"";

/// A running broker with no queues, stopped when this is dropped.
pub struct RabbitMq {
    broker: Option<Process>,
    installation: Installation,
    ports: [u16; 3],
    // After the process: the data goes when nobody uses it any more.
    folder: Folder,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// Erlang's folder, with `bin` in it.
    erlang: PathBuf,
    /// RabbitMQ's folder, with `sbin` in it.
    pub(crate) rabbitmq: PathBuf,
    libraries: String,
}

/// A new broker on loopback.
///
/// # Errors
/// [`Unavailable::Missing`] when RabbitMQ is not on this machine.
pub fn rabbitmq() -> Result<RabbitMq, Unavailable> {
    let installation = find(&Cache::of_user())?;
    RabbitMq::start(installation).map_err(Unavailable::broken(NAME))
}

impl RabbitMq {
    fn start(installation: Installation) -> Result<Self, ProcessError> {
        let folder = Folder::new()?;
        let mut broker =
            Self { broker: None, installation, ports: [free_port()?, free_port()?, free_port()?], folder };
        broker.run()?;
        Ok(broker)
    }

    fn run(&mut self) -> Result<(), ProcessError> {
        let [port, ..] = self.ports;
        self.folder.write("enabled_plugins", "[].\n")?;
        self.start_script()?;
        self.folder.write("rabbitmq.conf", &format!("listeners.tcp.1 = 127.0.0.1:{port}\n"))?;
        let log = self.folder.path().join("rabbitmq.log");
        let mut process = Process::start(Launch {
            name: NAME,
            program: &find_program("sh").unwrap_or_else(|| "/bin/sh".into()),
            args: vec![
                "-c".into(),
                SCRIPT.into(),
                self.installation.rabbitmq.join("sbin/rabbitmq-server").display().to_string(),
            ],
            log: log.clone(),
            stop: Signal::SIGKILL,
            account: None,
            env: self.environment(),
        })?;
        process.wait_ready("the start of RabbitMQ", DEADLINE, || {
            match fs::read_to_string(&log).unwrap_or_default().contains("Server startup complete") {
                true => Ok(()),
                false => Err("it is starting".into()),
            }
        })?;
        self.broker = Some(process);
        Ok(())
    }

    /// Debian's script that starts Erlang knows it in one place only; ours is a copy that knows
    /// where it was unpacked.
    fn start_script(&self) -> Result<(), ProcessError> {
        let (erlang, original) =
            (self.installation.erlang.display(), self.installation.erlang.join("bin/erl"));
        let script = fs::read_to_string(&original)
            .map_err(ProcessError::setup(format!("reading {}", original.display())))?;
        self.folder.make("bin")?;
        let path =
            self.folder.write("bin/erl", &script.replace("=/usr/lib/erlang", &format!("={erlang}")))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(ProcessError::setup(format!("changing {}", path.display())))
    }

    /// Where to connect, with the name and the password of a fresh broker.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.ports[0])
    }

    /// Kills the broker and starts it again on the same data and ports. What was not said to be
    /// durable is gone.
    ///
    /// # Errors
    /// When it does not start again.
    pub fn restart(&mut self) -> Result<(), ProcessError> {
        self.broker = None;
        self.run()
    }

    /// Closes every connection, as an administrator may, and gives what the broker says about it.
    ///
    /// # Errors
    /// What the program for administrators says when it fails.
    pub fn close_connections(&self) -> Result<String, String> {
        let program = self.installation.rabbitmq.join("sbin/rabbitmqctl");
        output(Command::new(program).args(["close_all_connections", "test"]).envs(self.environment()))
    }

    fn environment(&self) -> Vec<(String, String)> {
        let (folder, [port, names, nodes]) = (self.folder.path(), self.ports);
        let at = |name: &str| folder.join(name).display().to_string();
        let erlang = self.installation.erlang.display();
        [
            ("PATH", format!("{}:{erlang}/bin:/usr/bin:/bin", at("bin"))),
            ("HOME", folder.display().to_string()),
            ("ERL_EPMD_PORT", names.to_string()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_HOME", self.installation.rabbitmq.display().to_string()),
            ("RABBITMQ_NODENAME", format!("part{port}@localhost")),
            ("RABBITMQ_NODE_PORT", port.to_string()),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_DIST_PORT", nodes.to_string()),
            ("RABBITMQ_MNESIA_BASE", at("mnesia")),
            ("RABBITMQ_LOG_BASE", at("log")),
            ("RABBITMQ_LOGS", "-".into()),
            ("RABBITMQ_PID_FILE", at("pid")),
            ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
            ("LANG", "C.UTF-8".into()),
            ("LD_LIBRARY_PATH", self.installation.libraries.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// RabbitMQ as Debian's package has it, unpacked in the cache.
pub(crate) fn find(cache: &Cache) -> Result<Installation, Unavailable> {
    let root = cache.of(NAME);
    let missing = || Unavailable::missing(NAME, format!("no RabbitMQ in {}", root.display()));
    let erlang = root.join("usr/lib/erlang");
    let rabbitmq = versions(&root.join("usr/lib/rabbitmq/lib")).pop().ok_or_else(missing)?;
    let found = [erlang.join("bin/erl"), rabbitmq.join("sbin/rabbitmq-server")];
    match found.iter().all(|program| is_executable(program)) {
        true => Ok(Installation { erlang, rabbitmq, libraries: debian::library_path(&root) }),
        false => Err(missing()),
    }
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    debian::unpack(PACKAGE, &cache.of(NAME), progress)?;
    find(cache)?;
    Ok(())
}

fn versions(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}
