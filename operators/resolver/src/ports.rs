//! A port of its own for each port of a service: whose a connection is, is then known before it
//! says a word, so that anything over TCP can be held and handed on.

use crate::directory::Directory;
use crate::target::ServiceKey;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// How long to wait before a port that could not be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// By which way a connection came in.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// The port that all share: `Host` says whose a request is.
    Shared,
    /// A port that belongs to one port of one service.
    Own(Arc<Behind>),
}

/// What stands behind a port of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) service: ServiceKey,
    /// The port of the Service.
    pub(crate) port: u16,
}

/// Listens on the ports that the directory names, for as long as it does.
pub(crate) async fn keep<F, T>(directory: &Directory, address: IpAddr, accept: F) -> io::Result<()>
where
    F: Fn(TcpListener, Arc<Behind>) -> T,
    T: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut wanted = directory.doors();
    let mut listening = JoinSet::new();
    let mut open: BTreeMap<u16, (Arc<Behind>, AbortHandle)> = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        open.retain(|port, (behind, task)| {
            let stays = now.get(port) == Some(&**behind) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        let mut missing = false;
        for (port, behind) in now {
            if open.contains_key(&port) {
                continue;
            }
            match TcpListener::bind(SocketAddr::new(address, port)).await {
                Ok(listener) => {
                    let behind = Arc::new(behind);
                    let task = listening.spawn(accept(listener, Arc::clone(&behind)));
                    open.insert(port, (behind, task));
                }
                Err(error) => {
                    missing = true;
                    tracing::warn!(port, service = %behind.service, %error, "a port for a service cannot be had");
                }
            }
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return Ok(()) },
            Some(_) = listening.join_next() => {}
            () = tokio::time::sleep(AGAIN), if missing => {}
        }
    }
}
