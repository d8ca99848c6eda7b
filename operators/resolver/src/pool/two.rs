//! Connections of HTTP/2, each shared by many requests.

use super::{Pool, Sending, Tracked, lock};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Streams on one connection; more open another. What most servers allow.
const STREAMS: usize = 100;
/// How much of an answer may wait for a slow client.
const WINDOW: u32 = 64 * 1024;

/// The connections, per pod.
#[derive(Default)]
pub(super) struct Shared(HashMap<SocketAddr, Peer>);

#[derive(Default)]
struct Peer {
    open: Vec<Open>,
    /// Whoever holds it opens the next connection; the others wait for that one.
    opening: Arc<tokio::sync::Mutex<()>>,
}

struct Open {
    sender: SendRequest<Sending>,
    streams: Arc<AtomicUsize>,
    /// How many streams the pod allows at a time.
    allowed: Arc<AtomicUsize>,
}

/// A connection with room for one more stream.
pub(crate) struct Two {
    pub(crate) sender: SendRequest<Sending>,
    pub(crate) streams: Streams,
}

/// A place among the streams of a connection.
pub(crate) struct Streams(Arc<AtomicUsize>);

impl Drop for Streams {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// A connection for a request of HTTP/2.
    pub(crate) async fn two(&self, address: SocketAddr) -> io::Result<Two> {
        if let Some(two) = self.join(address) {
            return Ok(two);
        }
        let opening = Arc::clone(&lock(&self.twos).0.entry(address).or_default().opening);
        let _turn = opening.lock().await;
        if let Some(two) = self.join(address) {
            return Ok(two);
        }
        let stream = self.dial(address).await?;
        // No stream can use up the window of the connection: a client that does not read its
        // answer holds up nobody else's.
        let (mut sender, connection) = http2::Builder::new(Tracked(self.tasks.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS as u32)
            .initial_max_send_streams(STREAMS)
            .max_send_buf_size(WINDOW as usize)
            // A pod that vanished is noticed although nothing says so.
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let allowed = Arc::new(AtomicUsize::new(STREAMS));
        let told = Arc::clone(&allowed);
        self.tasks.spawn(async move {
            let mut connection = pin!(connection);
            let driven = poll_fn(|cx| {
                let ended = connection.as_mut().poll(cx);
                told.store(connection.current_max_send_streams(), Ordering::Relaxed);
                ended
            });
            if let Err(error) = driven.await {
                tracing::debug!(%address, %error, "a connection to a pod ended");
            }
        });
        sender.ready().await.map_err(io::Error::other)?;
        let streams = Arc::new(AtomicUsize::new(1));
        let open = Open { sender: sender.clone(), streams: Arc::clone(&streams), allowed };
        lock(&self.twos).0.entry(address).or_default().open.push(open);
        Ok(Two { sender, streams: Streams(streams) })
    }

    /// The connection with the fewest streams, if it has room.
    fn join(&self, address: SocketAddr) -> Option<Two> {
        let mut shared = lock(&self.twos);
        let peer = shared.0.get_mut(&address)?;
        peer.open.retain(|open| !open.sender.is_closed());
        let open = peer.open.iter().min_by_key(|open| open.streams.load(Ordering::Relaxed))?;
        let room = STREAMS.min(open.allowed.load(Ordering::Relaxed));
        // A server that allows none at all gets its requests all the same, and queues them.
        if open.streams.load(Ordering::Relaxed) >= room.max(1) {
            return None;
        }
        open.streams.fetch_add(1, Ordering::Relaxed);
        Some(Two { sender: open.sender.clone(), streams: Streams(Arc::clone(&open.streams)) })
    }
}

impl Shared {
    pub(super) fn sweep(&mut self) {
        for peer in self.0.values_mut() {
            let idle = peer.open.iter().position(|open| open.streams.load(Ordering::Relaxed) == 0);
            // One is kept for the next request; those of a burst go one at a time.
            if peer.open.len() > 1
                && let Some(idle) = idle
            {
                peer.open.swap_remove(idle);
            }
            peer.open.retain(|open| !open.sender.is_closed());
        }
        self.0.retain(|_, peer| !peer.open.is_empty() || Arc::strong_count(&peer.opening) > 1);
    }
}
