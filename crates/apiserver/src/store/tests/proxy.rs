//! A way to a PostgreSQL that can be cut at the worst moments.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What becomes of the next thing that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mischief {
    /// Nothing bad.
    None = 0,
    /// The next request of an open connection is lost, and the connection with it.
    LoseRequest = 1,
    /// The next answer on an open connection is lost, and the connection with it.
    LoseAnswer = 2,
    /// Open connections are cut, and nobody gets through.
    Closed = 3,
}

/// Passes bytes on, until it is told not to.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    mischief: AtomicU8,
    changed: Notify,
}

impl Shared {
    /// Whether this mischief is wanted; a loss happens once.
    fn take(&self, mischief: Mischief) -> bool {
        let none = Mischief::None as u8;
        self.mischief.compare_exchange(mischief as u8, none, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn is_closed(&self) -> bool {
        self.mischief.load(Ordering::SeqCst) == Mischief::Closed as u8
    }
}

impl Proxy {
    pub(super) async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { mischief: AtomicU8::new(0), changed: Notify::new() });
        let task = tokio::spawn(accept(listener, port, Arc::clone(&shared)));
        Proxy { address, shared, task }
    }

    pub(super) fn set(&self, mischief: Mischief) {
        self.shared.mischief.store(mischief as u8, Ordering::SeqCst);
        self.shared.changed.notify_waiters();
    }

    /// Whether a loss that was wanted has happened.
    pub(super) fn is_done(&self) -> bool {
        self.shared.mischief.load(Ordering::SeqCst) == Mischief::None as u8
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if shared.is_closed() {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            // Whichever direction ends first takes the other with it.
            tokio::select! {
                () = pass(from_client, to_server, &shared, Mischief::LoseRequest) => {}
                () = pass(from_server, to_client, &shared, Mischief::LoseAnswer) => {}
                () = closed(&shared) => {}
            }
        });
    }
}

async fn closed(shared: &Shared) {
    loop {
        let changed = shared.changed.notified();
        if shared.is_closed() {
            return;
        }
        changed.await;
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, loss: Mischief) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length) = from.read(&mut buffer).await {
        if length == 0 || shared.take(loss) || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
