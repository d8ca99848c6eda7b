//! The proxies under test, each a process of its own on a core of its own.

use crate::Outcome;
use crate::load::Load;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use steersman_resolver::{Backend, Directory, Options, Route, ServiceKey, ServicePort, Wake, Waking, serve};

/// The core of the proxy.
const CORE: &str = "0";

/// A process that is killed when this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    _folder: Option<tempfile::TempDir>,
}

impl Child {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells the process something on its standard input.
    pub(crate) fn tell(&mut self, line: &str) -> Outcome<()> {
        let input = self.process.stdin.as_mut().ok_or("the child has no input")?;
        input.write_all(format!("{line}\n").as_bytes())?;
        Ok(input.flush()?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A proxy under test.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Where HTTP/2 is spoken.
    two: SocketAddr,
    pub(crate) child: Child,
    /// The port for questions; nginx has none.
    pub(crate) internal: SocketAddr,
}

impl Proxy {
    pub(crate) fn resolver(pod: SocketAddr) -> Outcome<Self> {
        let (child, addresses) = spawn_self(CORE, &["resolver", &pod.to_string()])?;
        Ok(Self { address: addresses[0], two: addresses[0], child, internal: addresses[1] })
    }

    pub(crate) fn nginx(program: &Path, pod: SocketAddr) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let free =
            || -> Outcome<SocketAddr> { Ok(SocketAddr::from(([127, 0, 0, 1], xtask::parts::free_port()?))) };
        let (address, two) = (free()?, free()?);
        let configuration = folder.path().join("nginx.conf");
        let here = folder.path().display();
        let mut text = format!(
            "daemon off; master_process off; worker_processes 1; error_log stderr crit; pid {here}/pid;\n\
             events {{ worker_connections 20000; }}\n\
             http {{ access_log off; keepalive_requests 1000000; client_max_body_size 0;\n\
             upstream pod {{ server {pod}; keepalive 128; keepalive_requests 1000000; }}\n\
             server {{ listen {address}; listen {two} http2; server_name web.shop.svc.cluster.local;\n\
             location / {{ proxy_pass http://pod; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             proxy_set_header X-Forwarded-Host $host; proxy_request_buffering off;\n\
             proxy_max_temp_file_size 0; }} location /events {{ proxy_pass http://pod; proxy_buffering off; }} }}\n"
        );
        for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(text, "{name}_temp_path {here}/{name};")?;
        }
        text.push('}');
        fs::write(&configuration, text)?;
        let process = Command::new("taskset")
            .args(["-c", CORE])
            .arg(program)
            .args(["-e", "stderr", "-p"])
            .arg(folder.path())
            .arg("-c")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let child = Child { process, _folder: Some(folder) };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err("nginx does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { address, two, child, internal: address })
    }

    /// Processor time per request; for events the delay of the first one.
    pub(crate) fn measure(&self, load: Load, requests: usize) -> Outcome<Duration> {
        let address = if load == Load::Two { self.two } else { self.address };
        // Connections to the pod are made before, as they would be in any longer run.
        load.run(address, requests / 20 + 1)?;
        let before = cpu(self.child.pid())?;
        let delay = load.run(address, requests)?;
        let spent = cpu(self.child.pid())?.saturating_sub(before);
        Ok(if load == Load::Events { delay } else { spent / u32::try_from(requests)? })
    }
}

/// Nobody has to be asked: pods come when the benchmark says so.
struct Awake;

impl Wake for Awake {
    fn wake<'a>(&'a self, _: &'a ServiceKey) -> Waking<'a> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A resolver that has the pod at first, and loses or gets it when told `sleep` or `ready`.
pub(crate) fn run_resolver(pod: &str) -> Outcome<()> {
    let pod: SocketAddr = pod.parse()?;
    let directory = Directory::new();
    let set = move |directory: &Directory, ready: bool| {
        let backend = Backend { address: pod.ip(), ports: BTreeMap::from([(80, pod.port())]) };
        let ports = vec![ServicePort { number: 80, name: String::new() }];
        let backends = if ready { vec![backend] } else { Vec::new() };
        directory.set(&ServiceKey::new("shop", "web"), Route { ports, backends, ..Route::default() });
    };
    set(&directory, true);
    let told = directory.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            set(&told, line == "ready");
        }
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async move {
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let internal = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening {} {}", proxy.local_addr()?, internal.local_addr()?);
        let options = Options { pending_per_service: 20_000, ..Options::new(Arc::new(Awake)) };
        serve(proxy, internal, directory, options, Default::default()).await?;
        Ok(())
    })
}

/// Starts this program in another role and reads where it listens.
pub(crate) fn spawn_self(core: &str, arguments: &[&str]) -> Outcome<(Child, Vec<SocketAddr>)> {
    let mut process = Command::new("taskset")
        .args(["-c", core])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = process.stdout.take().ok_or("no output")?;
    let child = Child { process, _folder: None };
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let addresses: Result<Vec<SocketAddr>, _> = line.split_whitespace().skip(1).map(str::parse).collect();
    let addresses = addresses?;
    if addresses.is_empty() {
        return Err(format!("{arguments:?} did not start: {line:?}").into());
    }
    Ok((child, addresses))
}

/// Keeps this process on a core.
pub(crate) fn pin_self(core: &str) -> Outcome<()> {
    let pid = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-c", "-p", core, &pid]).stdout(Stdio::null()).status()?;
    if done.success() { Ok(()) } else { Err("taskset of util-linux is needed".into()) }
}

/// The processor time of all threads of a process, to the nanosecond.
fn cpu(pid: u32) -> Outcome<Duration> {
    let mut total = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        total += text.split_whitespace().next().ok_or("no schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// The resident memory of a process.
pub(crate) fn memory(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib * 1024)
}
