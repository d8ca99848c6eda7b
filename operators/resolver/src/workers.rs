//! Threads of their own for connections: one per core, each with its own runtime and its own
//! connections to pods, so that nothing of a request ever moves from one core to another.
//!
//! ```text
//!                 ┌─▶ listener ─▶ thread 1 ─▶ its pool ─▶ pods
//! the kernel ─────┤    (SO_REUSEPORT: every thread has a queue of its own)
//!                 └─▶ listener ─▶ thread 2 ─▶ its pool ─▶ pods
//! ```
//! What services look like, who waits and what is counted is shared; wake-up calls are made on the
//! runtime that called.

use crate::forward::Forwarder;
use crate::pool;
use crate::ports::Door;
use crate::serve::Server;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections that may wait to be accepted, per thread.
const BACKLOG: u32 = 1024;
/// Listeners that may wait to be taken over by a thread.
const JOBS: usize = 64;

/// Threads that serve connections.
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    jobs: Vec<Sender<Job>>,
    failed: Receiver<io::Error>,
}

/// A listener for one thread.
struct Job {
    listener: std::net::TcpListener,
    door: Door,
    /// Ends the accepting.
    stop: CancellationToken,
}

/// One thread.
struct Worker {
    server: Server,
    forwarder: Arc<Forwarder>,
    jobs: Receiver<Job>,
    failed: Sender<io::Error>,
}

/// Who hands listeners to threads.
#[derive(Clone)]
pub(crate) struct Hands(Vec<Sender<Job>>);

impl Workers {
    /// A thread for each of these.
    pub(crate) fn start(server: &Server, forwarders: Vec<Arc<Forwarder>>) -> io::Result<Self> {
        let (failing, failed) = mpsc::channel(1);
        let mut workers = Self { threads: Vec::new(), jobs: Vec::new(), failed };
        for (number, forwarder) in forwarders.into_iter().enumerate() {
            let (sender, jobs) = mpsc::channel(JOBS);
            let worker = Worker { server: server.of_one_thread(), forwarder, jobs, failed: failing.clone() };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let thread = std::thread::Builder::new().name(format!("resolver-{number}"));
            workers.threads.push(thread.spawn(move || worker.run(&runtime))?);
            workers.jobs.push(sender);
        }
        Ok(workers)
    }

    /// For those who have listeners.
    pub(crate) fn hands(&self) -> Hands {
        Hands(self.jobs.clone())
    }

    /// Resolves when a listener cannot be used any more.
    pub(crate) async fn failed(&mut self) -> io::Error {
        match self.failed.recv().await {
            Some(error) => error,
            None => io::Error::other("the threads of the resolver have ended"),
        }
    }

    /// Waits for their end, which the server's tokens bring about.
    pub(crate) async fn join(self) {
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().try_for_each(JoinHandle::join));
        if !matches!(joined.await, Ok(Ok(()))) {
            tracing::error!("a thread of the resolver panicked");
        }
    }
}

impl Hands {
    /// Accepts on all threads for as long as this runs.
    pub(crate) async fn accept(self, listener: TcpListener, door: Door) -> io::Result<()> {
        let stop = CancellationToken::new();
        let _stops = stop.clone().drop_guard();
        for (listener, thread) in multiply(listener, self.0.len())?.into_iter().zip(&self.0) {
            let job = Job { listener, door: door.clone(), stop: stop.clone() };
            let gone = |_| io::Error::other("a thread of the resolver has ended");
            thread.send(job).await.map_err(gone)?;
        }
        std::future::pending().await
    }
}

/// Makes further listeners on the address of one, as many as there are threads.
fn multiply(listener: TcpListener, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    let address = listener.local_addr()?;
    if count > 1 {
        // Nobody could take the port before it was ours; from now on our own threads may share it.
        SockRef::from(&listener).set_reuse_port(true)?;
    }
    let mut all = vec![listener.into_std()?];
    while all.len() < count {
        match beside(address).and_then(TcpListener::into_std) {
            Ok(listener) => all.push(listener),
            Err(error) => {
                tracing::warn!(%address, %error, threads = all.len(), "not all threads listen");
                break;
            }
        }
    }
    Ok(all)
}

fn beside(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Worker {
    fn run(mut self, runtime: &Runtime) {
        runtime.block_on(async {
            let (closing, abort) = (self.server.closing.clone(), self.server.abort.clone());
            let _ = closing.run_until_cancelled(self.serve()).await;
            self.forwarder.pool.clear();
            let _ = abort.run_until_cancelled(self.server.tasks.wait()).await;
        });
    }

    /// Accepts where it is told to.
    async fn serve(&mut self) {
        let mut doors = JoinSet::new();
        let mut sweep = tokio::time::interval(pool::STALE / 2);
        loop {
            tokio::select! {
                Some(job) = self.jobs.recv() => {
                    let (server, forwarder) = (self.server.clone(), Arc::clone(&self.forwarder));
                    doors.spawn(async move {
                        let listener = TcpListener::from_std(job.listener)?;
                        let accepting = server.accept(listener, job.door, forwarder);
                        job.stop.run_until_cancelled(accepting).await.unwrap_or(Ok(()))
                    });
                }
                Some(ended) = doors.join_next() => if let Ok(Err(error)) = ended {
                    // Whoever listens hears of one; the first ends everything.
                    let _ = self.failed.try_send(error);
                },
                _ = sweep.tick() => self.forwarder.pool.sweep(),
            }
        }
    }
}
