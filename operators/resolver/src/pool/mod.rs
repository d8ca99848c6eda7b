//! Connections to pods, kept for the next request.
//!
//! One of HTTP/1.1 carries one request at a time; those of HTTP/2 are shared.

mod ear;
mod one;
mod two;

pub(crate) use one::{One, Used};
pub(crate) use two::{Streams, Two};

use crate::outgoing::Outgoing;
use hyper::rt::Executor;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

/// After this long an unused connection is not trusted any more.
pub(crate) const STALE: Duration = Duration::from_secs(30);

/// Connections to pods.
#[derive(Clone)]
pub(crate) struct Pool {
    ones: Arc<Mutex<one::Kept>>,
    twos: Arc<Mutex<two::Shared>>,
    tasks: TaskTracker,
    connect: Duration,
}

impl Pool {
    pub(crate) fn new(tasks: TaskTracker, connect: Duration) -> Self {
        Self { ones: Arc::default(), twos: Arc::default(), tasks, connect }
    }

    /// Closes what nobody uses.
    pub(crate) fn clear(&self) {
        let (ones, twos) = (std::mem::take(&mut *lock(&self.ones)), std::mem::take(&mut *lock(&self.twos)));
        drop((ones, twos));
    }

    /// Closes what has not been used for long.
    pub(crate) fn sweep(&self) {
        lock(&self.ones).sweep();
        lock(&self.twos).sweep();
    }

    /// A connection to a pod.
    pub(crate) async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(self.connect, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(stream)
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

/// What a pod's connection is given to send.
type Sending = Outgoing;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
