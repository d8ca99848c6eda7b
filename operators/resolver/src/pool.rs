//! Connections to pods, kept for the next request.

use crate::body::Outgoing;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Connections that are kept per pod; more are closed after use.
const IDLE: usize = 128;
/// After this long an unused connection is not trusted any more.
const STALE: Duration = Duration::from_secs(30);

/// Connections to pods.
#[derive(Clone)]
pub(crate) struct Pool {
    kept: Arc<Mutex<Kept>>,
    tasks: TaskTracker,
    connect: Duration,
}

#[derive(Default)]
struct Kept {
    one: HashMap<SocketAddr, Vec<(http1::SendRequest<Outgoing>, Instant)>>,
    two: HashMap<SocketAddr, http2::SendRequest<Outgoing>>,
    swept: Option<Instant>,
}

/// A connection that speaks the client's protocol, and whether it has carried requests before.
pub(crate) enum Connection {
    One(http1::SendRequest<Outgoing>, Used),
    Two(http2::SendRequest<Outgoing>),
}

/// Whether a connection has carried requests before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Fresh,
    Before,
}

/// A connection in use, to be given back.
pub(crate) struct Lent {
    pool: Pool,
    address: SocketAddr,
    sender: Option<http1::SendRequest<Outgoing>>,
}

impl Pool {
    pub(crate) fn new(tasks: TaskTracker, connect: Duration) -> Self {
        Self { kept: Arc::default(), tasks, connect }
    }

    /// A connection for a request of HTTP/1.1.
    pub(crate) async fn one(&self, address: SocketAddr) -> io::Result<Connection> {
        if let Some(sender) = self.take(address) {
            return Ok(Connection::One(sender, Used::Before));
        }
        self.fresh(address).await
    }

    /// A new connection for a request of HTTP/1.1.
    pub(crate) async fn fresh(&self, address: SocketAddr) -> io::Result<Connection> {
        let stream = self.dial(address).await?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%address, %error, "a connection to a pod ended");
            }
        });
        Ok(Connection::One(sender, Used::Fresh))
    }

    /// A connection for a request of HTTP/2, shared by all.
    pub(crate) async fn two(&self, address: SocketAddr) -> io::Result<Connection> {
        let known = lock(&self.kept).two.get(&address).cloned();
        if let Some(sender) = known.filter(|sender| !sender.is_closed()) {
            return Ok(Connection::Two(sender));
        }
        let stream = self.dial(address).await?;
        let executor = Tracked(self.tasks.clone());
        let (sender, connection) = http2::Builder::new(executor)
            .adaptive_window(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%address, %error, "a connection to a pod ended");
            }
        });
        lock(&self.kept).two.insert(address, sender.clone());
        Ok(Connection::Two(sender))
    }

    /// What to give back once the answer is through.
    pub(crate) fn lent(&self, address: SocketAddr, sender: Option<http1::SendRequest<Outgoing>>) -> Lent {
        Lent { pool: self.clone(), address, sender }
    }

    /// Closes what nobody uses.
    pub(crate) fn clear(&self) {
        let kept = std::mem::take(&mut *lock(&self.kept));
        drop(kept);
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(self.connect, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn take(&self, address: SocketAddr) -> Option<http1::SendRequest<Outgoing>> {
        let mut kept = lock(&self.kept);
        let idle = kept.one.get_mut(&address)?;
        // The last one used is the least likely to be closed by the other side.
        while let Some((sender, since)) = idle.pop() {
            if sender.is_ready() && since.elapsed() < STALE {
                return Some(sender);
            }
        }
        None
    }

    fn put(&self, address: SocketAddr, sender: http1::SendRequest<Outgoing>) {
        let mut kept = lock(&self.kept);
        let now = Instant::now();
        if kept.swept.is_none_or(|swept| now - swept > STALE) {
            kept.swept = Some(now);
            for idle in kept.one.values_mut() {
                idle.retain(|(sender, since)| !sender.is_closed() && now - *since < STALE);
            }
            kept.one.retain(|_, idle| !idle.is_empty());
            kept.two.retain(|_, sender| !sender.is_closed());
        }
        let idle = kept.one.entry(address).or_default();
        if idle.len() < IDLE {
            idle.push((sender, now));
        }
    }
}

impl Lent {
    /// The answer is through.
    pub(crate) fn give_back(mut self) {
        if let Some(sender) = self.sender.take()
            && !sender.is_closed()
        {
            self.pool.put(self.address, sender);
        }
    }
}

/// Runs what HTTP/2 needs to run beside.
#[derive(Clone)]
pub(crate) struct Tracked(pub(crate) TaskTracker);

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
