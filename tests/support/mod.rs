//! A `steer up` of its own for each test: its own folder, free ports, and nothing left behind.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

pub mod audit;
pub mod beside;
pub mod egress;
pub mod usage;
pub mod way;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long anything may take before a test gives up; far above what it should take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The binary under test.
pub fn steer() -> &'static str {
    env!("CARGO_BIN_EXE_steer")
}

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Waits until `check` returns something, or fails with what it was waiting for.
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A running `steer up`.
pub struct Up {
    child: Child,
    pub dir: PathBuf,
}

impl Up {
    /// Starts one on this folder and waits until it is ready.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// The same with further arguments.
    pub fn start_with(dir: &Path, args: &[&str]) -> Self {
        Self::start_env(dir, args, &[])
    }

    /// The same with environment variables as well.
    pub fn start_env(dir: &Path, args: &[&str], variables: &[(&str, String)]) -> Self {
        let log = fs::File::options().create(true).append(true).open(dir.with_extension("log")).unwrap();
        let _ = fs::remove_file(dir.join("kubeconfig"));
        let child = Command::new(steer())
            .args(["up", "--api-port", "0", "--http-port", "0", "--metrics-port", "0", "--data-dir"])
            .arg(dir)
            .args(args)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut up = Self { child, dir: dir.to_owned() };
        eventually("`steer up` writes its kubeconfig", || {
            if let Some(status) = up.child.try_wait().unwrap() {
                panic!("`steer up` ended with {status}:\n{}", up.log());
            }
            up.kubeconfig().exists().then_some(())
        });
        up
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    /// Runs a client command of `steer` against it.
    pub fn steer(&self, args: &[&str]) -> Output {
        Command::new(steer())
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The same; it must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.steer(args);
        assert!(
            output.status.success(),
            "steer {args:?} failed: {}{}\n--- steer up:\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same; it must fail. Returns what it wrote to standard error.
    pub fn refuse(&self, args: &[&str]) -> String {
        let output = self.steer(args);
        assert!(!output.status.success(), "steer {args:?} should have failed");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Objects of a type as JSON.
    pub fn objects(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let text = self.run(&[&["get"], args, &["-o", "json"]].concat());
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        match list.get("items").and_then(serde_json::Value::as_array) {
            Some(items) => items.clone(),
            None => vec![list],
        }
    }

    /// Stops it as Ctrl-C does and waits for the end.
    pub fn stop(mut self) {
        kill(self.pid(), Signal::SIGINT).unwrap();
        let status = eventually("`steer up` stops on Ctrl-C", || self.child.try_wait().unwrap());
        assert!(status.success(), "`steer up` ended with {status}:\n{}", self.log());
    }

    /// Kills it without a chance to clean up.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes whose environment holds this text.
pub fn processes_with(text: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let dead = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "));
            !dead && environment.windows(text.len()).any(|window| window == text.as_bytes())
        })
        .collect()
}

/// The body of a GET over plain HTTP, or nothing while nobody answers.
pub fn http_get(address: &str) -> Option<String> {
    let authority = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let mut stream = TcpStream::connect(authority).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// A client for a kubeconfig.
pub async fn client(kubeconfig: &Path) -> kube::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}
