//! A Prometheus server of its own for a test.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::process::{Launch, find_program, is_executable, output};
use super::{Cache, Folder, Process, ProcessError, Progress, Unavailable, debian, free_port};

/// The part's name.
pub(crate) const NAME: &str = "prometheus";
const PACKAGE: &str = "prometheus";
const SYSTEM: &str = "/usr/bin/prometheus";
const DEADLINE: Duration = Duration::from_secs(60);

/// The program and what it says its version is.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
}

/// A running server that scrapes itself and one other place, stopped when this is dropped.
pub struct Prometheus {
    server: Option<Process>,
    port: u16,
    // After the process: the data goes when nobody uses it any more.
    _folder: Folder,
}

/// What a server scrapes besides itself, and what it makes of it.
#[derive(Clone, Debug, Default)]
pub struct PrometheusOptions {
    /// A `host:port`.
    pub target: String,
    /// Scrape over HTTPS, whatever the certificate, with this bearer token. Plain HTTP by default.
    pub token: Option<String>,
    /// Rules, as they stand in a rule file. None.
    pub rules: Option<String>,
}

/// A new server on loopback that scrapes itself as `job="prometheus"` and `target`, a `host:port`, as
/// `job="target"`, once a second.
///
/// # Errors
/// [`Unavailable::Missing`] when Prometheus is not on this machine.
pub fn prometheus(target: &str) -> Result<Prometheus, Unavailable> {
    prometheus_with(&PrometheusOptions { target: target.to_owned(), ..PrometheusOptions::default() })
}

/// The same with rules, which are evaluated once a second, or for a target that is guarded.
///
/// # Errors
/// [`Unavailable::Missing`] when Prometheus is not on this machine.
pub fn prometheus_with(options: &PrometheusOptions) -> Result<Prometheus, Unavailable> {
    let installation = find(&Cache::of_user())?;
    Prometheus::start(&installation, options).map_err(Unavailable::broken(NAME))
}

/// The program, for whoever starts it elsewhere.
///
/// # Errors
/// [`Unavailable::Missing`] when Prometheus is not on this machine.
pub fn prometheus_program() -> Result<PathBuf, Unavailable> {
    find(&Cache::of_user()).map(|installation| installation.path)
}

impl Prometheus {
    fn start(installation: &Installation, options: &PrometheusOptions) -> Result<Self, ProcessError> {
        let folder = Folder::new()?;
        let data = folder.make("data")?;
        let port = free_port()?;
        let settings = folder.path().join("prometheus.yml");
        let target = &options.target;
        let mut text = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n\
             scrape_configs:\n\
             - job_name: prometheus\n  static_configs:\n  - targets: ['127.0.0.1:{port}']\n\
             - job_name: target\n  static_configs:\n  - targets: ['{target}']\n"
        );
        if let Some(token) = &options.token {
            text.push_str("  scheme: https\n  tls_config: {insecure_skip_verify: true}\n");
            text.push_str(&format!("  authorization: {{credentials: '{token}'}}\n"));
        }
        if let Some(rules) = &options.rules {
            let file = folder.write("rules.yml", rules)?;
            text.push_str(&format!("rule_files: ['{}']\n", file.display()));
        }
        fs::write(&settings, text).map_err(ProcessError::setup("writing prometheus.yml"))?;
        let mut server = Process::start(Launch {
            name: NAME,
            program: &installation.path,
            args: vec![
                format!("--config.file={}", settings.display()),
                format!("--storage.tsdb.path={}", data.display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
            ],
            log: folder.path().join("prometheus.log"),
            stop: Signal::SIGKILL,
            account: None,
            env: Vec::new(),
        })?;
        server.wait_ready("Prometheus", DEADLINE, || is_ready(port))?;
        Ok(Self { server: Some(server), port, _folder: folder })
    }

    /// Where it answers, such as `http://127.0.0.1:9090`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it, as when its machine goes away.
    pub fn kill(&mut self) {
        self.server = None;
    }
}

fn is_ready(port: u16) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /-/ready HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| error.to_string())?;
    let first = answer.lines().next().unwrap_or_default();
    if first.contains(" 200 ") { Ok(()) } else { Err(first.to_owned()) }
}

pub(crate) fn find(cache: &Cache) -> Result<Installation, Unavailable> {
    let unpacked = cache.of(NAME).join("usr/bin/prometheus");
    let candidates = find_program("prometheus").into_iter().chain([SYSTEM.into(), unpacked]);
    let candidates = candidates.filter(|path| is_executable(path));
    let mut working = candidates.filter_map(|path| Some(Installation { version: version(&path)?, path }));
    working.next().ok_or_else(|| {
        Unavailable::missing(NAME, format!("no working prometheus in PATH, {SYSTEM} or the cache"))
    })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    debian::unpack(PACKAGE, &cache.of(NAME), progress)
}

/// The third word of the first line: `prometheus, version 2.42.0+ds (branch: …)`.
fn version(program: &Path) -> Option<String> {
    let printed = output(Command::new("sh").args(["-c", "exec \"$0\" --version 2>&1"]).arg(program)).ok()?;
    printed.split_whitespace().nth(2).map(str::to_owned)
}
