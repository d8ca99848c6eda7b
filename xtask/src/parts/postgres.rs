//! A PostgreSQL server of its own for a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User, chown};

use super::process::{Account, Launch, find_program, is_executable, output};
use super::{Cache, Folder, Process, ProcessError, Progress, Unavailable, debian, free_port, wait_until};

/// The part's name.
pub(crate) const NAME: &str = "postgres";
const PACKAGE: &str = "postgresql-15";
const DEADLINE: Duration = Duration::from_secs(60);
/// Who the server runs as where we are root, which it refuses; whoever of them there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// The superuser of the database.
const OWNER: &str = "steersman";

/// A running server with one empty database, stopped when this is dropped.
pub struct Postgres {
    server: Option<Process>,
    installation: Installation,
    account: Option<Account>,
    data: PathBuf,
    port: u16,
    // After the process: the data goes when nobody uses it any more.
    folder: Folder,
}

/// Where the programs are and what they need to run.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    pub(crate) programs: PathBuf,
    libraries: Option<String>,
}

/// A new server on loopback, with no data.
///
/// # Errors
/// [`Unavailable::Missing`] when PostgreSQL is not on this machine.
pub fn postgres() -> Result<Postgres, Unavailable> {
    let installation = find(&Cache::of_user())?;
    Postgres::start(&installation).map_err(Unavailable::broken(NAME))
}

impl Postgres {
    fn start(installation: &Installation) -> Result<Self, ProcessError> {
        let folder = Folder::new()?;
        let data = folder.make("data")?;
        let account = unprivileged_account(&data)?;
        installation.initialize(&folder, &data, account.as_ref())?;
        let port = free_port()?;
        let installation = installation.clone();
        let mut postgres = Self { server: None, installation, account, data, port, folder };
        postgres.launch()?;
        Ok(postgres)
    }

    fn launch(&mut self) -> Result<(), ProcessError> {
        let data = self.data.display().to_string();
        let mut server = Process::start(Launch {
            name: NAME,
            program: &self.installation.programs.join("postgres"),
            args: vec![
                "-D".into(),
                data.clone(),
                "-h".into(),
                "127.0.0.1".into(),
                "-p".into(),
                self.port.to_string(),
                "-k".into(),
                data,
            ],
            log: self.folder.path().join("postgres.log"),
            // Ends at once, also the processes of open connections.
            stop: Signal::SIGQUIT,
            account: self.account.as_ref(),
            env: self.installation.environment(),
        })?;
        let (program, args) = self.ready_command();
        let environment = self.installation.environment();
        server.wait_ready("a connection to PostgreSQL", DEADLINE, || {
            output(Command::new(&program).args(&args).envs(environment.iter().cloned())).map(drop)
        })?;
        self.server = Some(server);
        Ok(())
    }

    /// Kills the server without a chance to finish anything, as when its machine goes away.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Starts it again after [`Postgres::kill`], with its data and on its port.
    ///
    /// # Errors
    /// When it does not come up, with the end of its log.
    pub fn start_again(&mut self) -> Result<(), ProcessError> {
        // Until the processes of old connections are gone, the server refuses to start.
        let mut last = None;
        let started = wait_until(DEADLINE, || {
            self.launch().map_err(|error| {
                let said = error.to_string();
                last = Some(error);
                said
            })
        });
        match (started, last) {
            (Err(_), Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Where to connect, with the name of the owner and no password.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.port)
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process; none while it is killed.
    pub fn process(&self) -> Option<&Process> {
        self.server.as_ref()
    }

    /// Where its log and its data are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs one statement with psql and gives what it prints, without headers.
    ///
    /// # Errors
    /// What psql wrote to its standard error, also when there is no psql.
    pub fn query(&self, sql: &str) -> Result<String, String> {
        let psql = self.installation.programs.join("psql");
        let psql = if is_executable(&psql) { psql } else { PathBuf::from("psql") };
        output(
            Command::new(psql)
                .args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", sql])
                .arg(self.url())
                .envs(self.installation.environment()),
        )
        .map(|printed| printed.trim_end().to_owned())
    }

    /// `pg_isready` belongs to the client's package; a connection by psql would too, so where
    /// neither is there the port alone must do.
    fn ready_command(&self) -> (PathBuf, Vec<String>) {
        let port = self.port.to_string();
        let program = self.installation.programs.join("pg_isready");
        if is_executable(&program) {
            return (program, ["-q", "-h", "127.0.0.1", "-p", &port].map(String::from).into());
        }
        let script = format!(": < /dev/tcp/127.0.0.1/{port}");
        ("bash".into(), vec!["-c".into(), script])
    }
}

impl Installation {
    fn environment(&self) -> Vec<(String, String)> {
        let libraries = self.libraries.iter();
        libraries.map(|path| ("LD_LIBRARY_PATH".into(), path.clone())).collect()
    }

    fn initialize(
        &self,
        folder: &Folder,
        data: &Path,
        account: Option<&Account>,
    ) -> Result<(), ProcessError> {
        let mut command = Command::new(self.programs.join("initdb"));
        if let Some(account) = account {
            account.own(&mut command);
        }
        // Locale C and no sync: the data lives as long as the test.
        command
            .current_dir(folder.path())
            .envs(self.environment())
            .args(["--username", OWNER, "--auth", "trust", "--encoding", "UTF8"])
            .args(["--locale", "C", "--no-sync", "--pgdata"])
            .arg(data);
        output(&mut command).map(drop).map_err(ProcessError::Setup)
    }
}

/// The newest PostgreSQL: as Debian installs it, in `PATH`, or unpacked in the cache.
pub(crate) fn find(cache: &Cache) -> Result<Installation, Unavailable> {
    let unpacked = cache.of_everyone(NAME);
    let in_path = find_program("initdb").and_then(|path| Some(path.parent()?.to_path_buf()));
    let system = newest(Path::new("/usr/lib/postgresql")).or(in_path);
    if let Some(programs) = system.filter(|folder| is_server(folder)) {
        return Ok(Installation { programs, libraries: None });
    }
    if let Some(programs) = newest(&unpacked.join("usr/lib/postgresql")) {
        return Ok(Installation { programs, libraries: Some(debian::library_path(&unpacked)) });
    }
    Err(Unavailable::missing(NAME, "no initdb and postgres in /usr/lib/postgresql or PATH"))
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    debian::unpack(PACKAGE, &cache.of_everyone(NAME), progress)
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    });
    versions.filter(|(_, programs)| is_server(programs)).max().map(|(_, programs)| programs)
}

fn is_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| is_executable(&folder.join(name)))
}

/// Gives the data to a user that the server may run as, when we are root.
fn unprivileged_account(data: &Path) -> Result<Option<Account>, ProcessError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = USERS.iter().find_map(|name| User::from_name(name).ok().flatten());
    let Some(user) = user else {
        return Err(ProcessError::Setup(format!(
            "PostgreSQL refuses to run as root, and there is no user {}",
            USERS.join(" or ")
        )));
    };
    chown(data, Some(user.uid), Some(user.gid))
        .map_err(|error| ProcessError::Setup(format!("giving {} away: {error}", data.display())))?;
    Ok(Some(Account { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
}
