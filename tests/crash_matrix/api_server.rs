//! An API server in the test, through which the operator writes, and which kills it at one write.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use steersman_apiserver::store::{Store, StoreOptions};
use steersman_apiserver::{Options, Server, User};

use crate::world::{Kill, MOMENT, When};

/// The server, reached by the test without sockets and by the operator over HTTP.
pub(crate) struct ApiServer {
    _server: Server,
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) trap: Trap,
}

impl ApiServer {
    pub(crate) async fn start(folder: &Path) -> Self {
        let server = Server::open(Store::memory(StoreOptions::default()), Options::default());
        let server = server.await.expect("a server");
        let client = Client::new(server.service(User::admin()), "default");
        let trap = Trap::default();
        let url = serve(client.clone(), trap.clone()).await;
        let kubeconfig = folder.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{url}\"}}}}]\nusers: [{{name: test, user: {{}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("written");
        Self { _server: server, client, kubeconfig, trap }
    }
}

async fn serve(client: Client, trap: Trap) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, trap) = (client.clone(), trap.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (client, trap) = (client.clone(), trap.clone());
                async move {
                    let due = trap.count(&request);
                    if due == Some(When::Before) {
                        trap.kill();
                        return Err(std::io::Error::other("killed before the write"));
                    }
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                    let answer = client.send(Request::from_parts(head, kube::client::Body::from(body))).await;
                    match due {
                        Some(When::After) => {
                            trap.kill();
                            return Err(std::io::Error::other("killed after the write"));
                        }
                        Some(When::Answered) => {
                            tokio::spawn(async move {
                                tokio::time::sleep(MOMENT).await;
                                trap.kill();
                            });
                        }
                        _ => {}
                    }
                    answer.map_err(std::io::Error::other)
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    url
}

/// Kills a process at one of its writes.
#[derive(Clone, Default)]
pub(crate) struct Trap(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    armed: Option<(Kill, Pid)>,
    writes: usize,
    /// Whether a kill is about to happen.
    aims: bool,
    /// The write at which it happened.
    sprung: Option<String>,
    /// Whom it met last.
    killed: Option<Pid>,
}

impl Trap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("the trap")
    }

    /// Counts from the start, and kills this process once.
    pub(crate) fn set(&self, kill: Kill, pid: Pid) {
        let mut state = self.lock();
        *state = State { armed: Some((kill, pid)), killed: state.killed, ..State::default() };
    }

    /// The process that was killed last.
    pub(crate) fn killed(&self) -> Option<Pid> {
        self.lock().killed
    }

    /// The write at which the process was killed, once it was.
    pub(crate) fn sprung(&self) -> Option<String> {
        self.lock().sprung.clone()
    }

    /// Waits for a kill that is about to happen.
    pub(crate) async fn settle(&self) {
        while self.lock().aims {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Counts a write of the operator's own objects, and says whether it is the one.
    fn count(&self, request: &Request<Incoming>) -> Option<When> {
        let path = request.uri().path();
        let ours = path.contains("/infra.steersman.io/") || path.contains("/configmaps");
        if request.method() == Method::GET || !ours {
            return None;
        }
        let mut state = self.lock();
        let number = state.writes;
        state.writes += 1;
        let when = state.armed.filter(|(trap, _)| trap.request == number).map(|(trap, _)| trap.when)?;
        state.aims = true;
        state.sprung = Some(format!("{} {path}", request.method()));
        Some(when)
    }

    fn kill(&self) {
        let mut state = self.lock();
        if let Some((_, pid)) = state.armed.take() {
            kill(pid, Signal::SIGKILL).expect("killed");
            state.killed = Some(pid);
        }
        state.aims = false;
    }
}
