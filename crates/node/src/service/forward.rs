//! Copying connections to a Service's endpoints in turn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::runtime::Network;

/// How long one endpoint has to accept before the next is tried.
const CONNECT: Duration = Duration::from_secs(3);
/// Connections of one listener at a time; more wait to be accepted.
const CONNECTIONS: usize = 2048;

/// Where connections go; changes while they are open.
#[derive(Debug, Default)]
pub(super) struct Backends {
    addresses: RwLock<Arc<[SocketAddr]>>,
    turn: AtomicUsize,
}

impl Backends {
    /// Replaces them. Open connections stay.
    pub(super) fn set(&self, addresses: &[SocketAddr]) {
        let mut current = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        if **current != *addresses {
            *current = addresses.into();
        }
    }

    /// All of them, beginning with the one whose turn it is.
    fn in_turn(&self) -> Vec<SocketAddr> {
        let all = Arc::clone(&self.addresses.read().unwrap_or_else(PoisonError::into_inner));
        if all.is_empty() {
            return Vec::new();
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % all.len();
        [&all[turn..], &all[..turn]].concat()
    }
}

/// Accepts until it is dropped.
pub(super) async fn forward(listener: TcpListener, backends: Arc<Backends>, network: Network) {
    let mut connections = JoinSet::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let backends = Arc::clone(&backends);
                    let network = network.clone();
                    connections.spawn(async move {
                        copy(stream, &backends, &network).await;
                        drop(permit);
                    });
                }
                // Out of descriptors: let some connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn copy(mut client: TcpStream, backends: &Backends, network: &Network) {
    for address in backends.in_turn() {
        match tokio::time::timeout(CONNECT, network.connect(address)).await {
            Ok(Ok(mut server)) => {
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                return;
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "endpoint does not answer"),
            Err(_) => tracing::debug!(%address, "endpoint does not answer in time"),
        }
    }
    // Nothing answers: the client sees what it would see of a port that nobody listens on.
    let _ = client.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_take_turns() {
        let backends = Backends::default();
        assert!(backends.in_turn().is_empty());
        let all: Vec<SocketAddr> = (1..=3).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        backends.set(&all);
        let first: Vec<u16> = (0..6).map(|_| backends.in_turn()[0].port()).collect();
        assert_eq!(first, [1, 2, 3, 1, 2, 3]);
        assert_eq!(backends.in_turn().len(), 3);
    }
}
