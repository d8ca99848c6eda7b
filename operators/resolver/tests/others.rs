//! The resolver between clients and servers that others wrote: curl, nginx, OpenSSL, Python's
//! WebSocket and gRPC, and Go's HTTP and gRPC.

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use steersman_resolver::Mode;
use support::{HOST, PATIENCE, Resolver, echo};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use xtask::parts::{self, Nginx, Unavailable, or_skip};

/// Runs curl against the resolver, under the name of the service; its output.
async fn curl(resolver: &Resolver, arguments: &[&str]) -> String {
    let port = resolver.address.port();
    let url = arguments.last().expect("an URL");
    let arguments = &arguments[..arguments.len() - 1];
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"])
        .args(["--connect-to", &format!("{HOST}:80:127.0.0.1:{port}")])
        .args(arguments)
        .arg(format!("http://{HOST}{url}"))
        .output()
        .await
        .expect("curl is there");
    assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server in a process of its own, and where it listens.
struct Server {
    address: SocketAddr,
    _process: Child,
    _folder: Option<tempfile::TempDir>,
}

async fn python(interpreter: &Path, role: &str) -> Server {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/others/peers.py");
    serve(Command::new(interpreter).args([script, role])).await
}

/// Starts a server that prints its port.
async fn serve(command: &mut Command) -> Server {
    let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("the server starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("its output");
    let read = tokio::time::timeout(PATIENCE * 3, BufReader::new(output).read_line(&mut line)).await;
    read.expect("in time").expect("a port");
    let address = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().expect("a port")));
    Server { address, _process: process, _folder: None }
}

/// Runs one of Python's clients while the service sleeps, and wakes it.
async fn python_client(interpreter: &Path, role: &str, resolver: &Resolver, pod: SocketAddr) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/others/peers.py");
    wakes(Command::new(interpreter).args([script, role]), resolver, 1, pod).await;
}

/// Runs one of Go's clients while the service sleeps, and wakes it once so many requests wait.
async fn go_client(program: &Path, role: &str, resolver: &Resolver, waiting: usize, pod: SocketAddr) {
    wakes(Command::new(program).arg(role), resolver, waiting, pod).await;
}

/// Runs a client, wakes the service once so many of its requests wait, and hears that all went well.
async fn wakes(client: &mut Command, resolver: &Resolver, waiting: usize, pod: SocketAddr) {
    let client = client.args([&resolver.address.to_string(), HOST]).kill_on_drop(true).output();
    let client = tokio::spawn(client);
    resolver.wait_pending(waiting).await;
    resolver.set(&[pod], Mode::Proxy);
    let output = client.await.expect("no panic").expect("the client starts");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("well"), "{said}");
}

async fn nginx(nginx: &Nginx) -> (Server, SocketAddr) {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().display();
    std::fs::write(folder.path().join("page.txt"), "0123456789".repeat(10_000)).expect("written");
    let listening = || SocketAddr::from(([127, 0, 0, 1], parts::free_port().expect("a port")));
    let (one, two) = (listening(), listening());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {here}/{name};"))
        .concat();
    let text = format!(
        "daemon off; master_process off; error_log stderr; pid {here}/pid; events {{}}\n\
         http {{ {temporary} access_log off; gzip on; gzip_types text/plain; default_type text/plain;\n\
         server {{ listen {one}; listen {two} http2; root {here}; client_max_body_size 0; absolute_redirect off;\n\
         location /put {{ client_body_buffer_size 10m; return 200 \"$request_length $http_x_forwarded_host\"; }}\n\
         location /old {{ return 302 /page.txt; }} }} }}"
    );
    let configuration = folder.path().join("nginx.conf");
    std::fs::write(&configuration, text).expect("written");
    let process = Command::new(&nginx.path)
        .args(["-e", "stderr", "-p"])
        .arg(folder.path())
        .arg("-c")
        .arg(&configuration)
        .kill_on_drop(true)
        .spawn()
        .expect("nginx starts");
    for address in [one, two] {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "nginx does not listen");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    (Server { address: one, _process: process, _folder: Some(folder) }, two)
}

#[tokio::test]
async fn curl_reaches_a_sleeping_nginx_in_every_version_of_http() {
    let Some(found) = or_skip(parts::nginx()) else { return };
    let (server, two) = nginx(&found).await;
    for (flag, pod, version) in [
        ("--http1.0", server.address, "1"),
        ("--http1.1", server.address, "1.1"),
        // Asks for an upgrade, which nginx does not give.
        ("--http2", server.address, "1.1"),
        ("--http2-prior-knowledge", two, "2"),
    ] {
        let resolver = Resolver::start(|_| {}).await;
        let arguments = [flag, "--write-out", " %{http_code} %{http_version}", "/page.txt"];
        let asking = curl(&resolver, &arguments);
        let waking = async {
            resolver.wait_pending(1).await;
            resolver.set(&[pod], Mode::Proxy);
        };
        let (text, ()) = tokio::join!(asking, waking);
        let (body, end) = text.split_at(100_000);
        assert!(body.starts_with("0123456789") && end == format!(" 200 {version}"), "{flag}: {end}");
    }
}

#[tokio::test]
async fn what_nginx_and_curl_agree_on_goes_through_unchanged() {
    let Some(found) = or_skip(parts::nginx()) else { return };
    let (server, _) = nginx(&found).await;
    let resolver = Resolver::start(|_| {}).await;
    resolver.set(&[server.address], Mode::Proxy);
    assert_eq!(curl(&resolver, &["--range", "5-8", "/page.txt"]).await, "5678");
    let packed = [
        "--compressed",
        "--output",
        "/dev/null",
        "--write-out",
        "%{size_download} %header{content-encoding}",
    ];
    let packed = curl(&resolver, &[&packed[..], &["/page.txt"]].concat()).await;
    let (size, encoding) = packed.split_once(' ').expect("two words");
    assert!(encoding == "gzip" && size.parse::<usize>().is_ok_and(|size| size < 10_000), "{packed}");
    let head = curl(&resolver, &["--head", "/page.txt"]).await;
    assert!(head.contains("content-length: 100000") || head.contains("Content-Length: 100000"), "{head}");
    let moved = curl(&resolver, &["--location", "--write-out", " %{num_redirects}", "/old"]).await;
    assert!(moved.ends_with(" 1"), "{}", &moved[moved.len() - 20..]);
    let tag = curl(&resolver, &["--output", "/dev/null", "--write-out", "%header{etag}", "/page.txt"]).await;
    let unchanged =
        ["--header", &format!("If-None-Match: {tag}"), "--write-out", "%{http_code}", "/page.txt"];
    assert_eq!(curl(&resolver, &unchanged).await, "304");
}

#[tokio::test]
async fn curl_uploads_five_megabytes_and_is_told_when_to_begin() {
    let resolver = Resolver::start(|_| {}).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![b'x'; 5_000_000]).expect("written");
    let pod = echo().await;
    let file = file.display().to_string();
    for more in [&[][..], &["--header", "Transfer-Encoding: chunked"][..]] {
        resolver.sleep();
        let arguments =
            [&["--upload-file", &file, "--header", "Expect: 100-continue"][..], more, &["/up"]].concat();
        let asking = curl(&resolver, &arguments);
        let waking = async {
            resolver.wait_pending(1).await;
            resolver.set(&[pod], Mode::Proxy);
        };
        let (text, ()) = tokio::join!(asking, waking);
        assert_eq!(text, "/up 5000000", "{more:?}");
    }
}

#[tokio::test]
async fn websockets_of_others_work_from_the_handshake_to_the_close() {
    let Some(found) = or_skip(parts::protocols()) else { return };
    let server = python(&found.path, "serve-websocket").await;
    let resolver = Resolver::start(|_| {}).await;
    python_client(&found.path, "websocket", &resolver, server.address).await;
}

#[tokio::test]
async fn grpc_of_others_works_in_all_four_kinds_of_calls() {
    let Some(found) = or_skip(parts::protocols()) else { return };
    let server = python(&found.path, "serve-grpc").await;
    let resolver = Resolver::start(|_| {}).await;
    python_client(&found.path, "grpc", &resolver, server.address).await;
}

#[tokio::test]
async fn grpc_of_go_works_in_all_kinds_of_calls_and_keeps_its_codes() {
    let Some(program) = or_skip(parts::go_clients()) else { return };
    let server = serve(Command::new(&program).arg("serve-grpc")).await;
    let resolver = Resolver::start(|_| {}).await;
    go_client(&program, "ask-grpc", &resolver, 1, server.address).await;
}

/// The program of Go, which builds Kubernetes for other tests too.
async fn go(folder: &Path) -> Result<PathBuf, Unavailable> {
    let program = folder.join("peers");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/others/peers.go");
    let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(source).output().await;
    let built = built.map_err(|error| Unavailable::Missing {
        part: "go",
        what: format!("`go build` does not run: {error}"),
        remedy: "install Go 1.24 or newer".to_owned(),
    })?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(program)
}

#[tokio::test]
async fn what_go_speaks_is_held_and_streamed_with_its_trailers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = or_skip(go(folder.path()).await) else { return };
    let server = serve(Command::new(&program).arg("serve")).await;
    let resolver = Resolver::start(|_| {}).await;
    go_client(&program, "ask", &resolver, 8, server.address).await;
}

#[tokio::test]
async fn tls_of_others_passes_through_a_port_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"])
        .arg(format!("/CN={HOST}"))
        .args(["-addext", &format!("subjectAltName=DNS:{HOST}"), "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .await
        .expect("openssl is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let pod = SocketAddr::from(([127, 0, 0, 1], parts::free_port().expect("a port")));
    let mut server = Command::new("openssl")
        .args(["s_server", "-www", "-accept", &pod.to_string(), "-key"])
        .arg(&key)
        .arg("-cert")
        .arg(&certificate)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("openssl is there");
    // It says when it listens.
    let mut said = [0; 6];
    server.stdout.as_mut().expect("its output").read_exact(&mut said).await.expect("it speaks");
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    let asking = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60", "--cacert"])
        .arg(&certificate)
        .args(["--connect-to", &format!("{HOST}:443:127.0.0.1:{own}"), &format!("https://{HOST}/")])
        .output();
    let waking = async {
        resolver.wait_pending(1).await;
        resolver.set(&[pod], Mode::Proxy);
    };
    let (output, ()) = tokio::join!(asking, waking);
    let output = output.expect("curl is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("s_server -www"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
