//! Connections of HTTP/1.1.

use super::ear::Ear;
use super::{Pool, STALE, Sending, lock};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Connections that are kept per pod; more are closed after use.
const IDLE: usize = 128;

/// The idle ones, per pod.
#[derive(Default)]
pub(super) struct Kept(BTreeMap<SocketAddr, Vec<(One, Instant)>>);

/// Whether a connection has carried requests before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Fresh,
    Before,
}

/// A connection that carries one request at a time.
pub(crate) struct One {
    sender: SendRequest<Sending>,
    driven: Driven,
    ear: Arc<Ear>,
    pub(crate) used: Used,
}

/// Who moves the bytes of a connection.
enum Driven {
    /// Whoever waits for its answer: for most requests no other task has to be woken.
    ByRequest(Box<Connection<TokioIo<TcpStream>, Sending>>),
    /// A task of its own: bodies must go on being sent while nobody reads the answer.
    ByTask,
}

impl Pool {
    /// A connection for a request of HTTP/1.1.
    pub(crate) async fn one(&self, address: SocketAddr) -> io::Result<One> {
        // The last one used is the least likely to have been closed by the other side. One that was closed
        // nevertheless says so when it is given the request, and gives it back.
        while let Some(mut one) = self.take(address) {
            if one.is_free().await {
                return Ok(one);
            }
        }
        self.fresh(address).await
    }

    /// A new connection for a request of HTTP/1.1.
    pub(crate) async fn fresh(&self, address: SocketAddr) -> io::Result<One> {
        let stream = self.dial(address).await?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let driven = Driven::ByRequest(Box::new(connection));
        Ok(One { sender, driven, ear: Ear::new(), used: Used::Fresh })
    }

    /// Gives the connection a task of its own, which goes on when the protocol changes.
    pub(crate) fn drive(&self, one: &mut One, address: SocketAddr) {
        if let Driven::ByRequest(connection) = std::mem::replace(&mut one.driven, Driven::ByTask) {
            self.tasks.spawn(async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%address, %error, "a connection to a pod ended");
                }
            });
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, address: SocketAddr, mut one: One) {
        if one.sender.is_closed() {
            return;
        }
        one.used = Used::Before;
        let mut kept = lock(&self.ones);
        let idle = kept.0.entry(address).or_default();
        if idle.len() < IDLE {
            idle.push((one, Instant::now()));
        }
    }

    fn take(&self, address: SocketAddr) -> Option<One> {
        let mut kept = lock(&self.ones);
        let idle = kept.0.get_mut(&address)?;
        while let Some((one, since)) = idle.pop() {
            if since.elapsed() < STALE {
                return Some(one);
            }
        }
        None
    }
}

impl One {
    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Sending>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Sending>>> {
        self.ear.begin();
        let mut answer = pin!(self.sender.try_send_request(request));
        let (driven, ear) = (&mut self.driven, &self.ear);
        poll_fn(|cx| {
            ear.listen(cx, |cx| {
                driven.poll(cx);
                answer.as_mut().poll(cx)
            })
        })
        .await
    }

    /// Waits for something that comes over it, and moves its bytes, if that is up to the request.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut waits: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let driven = &mut self.driven;
        self.ear.listen(cx, |cx| {
            if let Poll::Ready(there) = waits(cx) {
                return Poll::Ready(there);
            }
            driven.poll(cx);
            waits(cx)
        })
    }

    /// Whether it can take a request, as far as is known.
    async fn is_free(&mut self) -> bool {
        if self.sender.is_ready() {
            return true;
        }
        // What ended its last answer may not have been looked at yet.
        let (driven, ear) = (&mut self.driven, &self.ear);
        poll_fn(|cx| {
            ear.listen(cx, |cx| {
                driven.poll(cx);
                Poll::Ready(())
            })
        })
        .await;
        self.sender.is_ready()
    }
}

impl Driven {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::ByRequest(connection) = self
            && let Poll::Ready(result) = Pin::new(connection).poll(cx)
        {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection to a pod ended");
            }
            *self = Self::ByTask;
        }
    }
}

impl Kept {
    pub(super) fn sweep(&mut self) {
        for idle in self.0.values_mut() {
            idle.retain(|(one, since)| !one.sender.is_closed() && since.elapsed() < STALE);
        }
        self.0.retain(|_, idle| !idle.is_empty());
    }
}
