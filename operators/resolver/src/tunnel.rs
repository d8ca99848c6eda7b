//! Bytes both ways between a client and a pod, in whatever protocol.

use crate::body::{Carried, Running};
use crate::forward::Forwarder;
use crate::line::{Client, Line};
use crate::target::Target;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Carries on after a client and a pod have agreed to leave HTTP.
pub(crate) async fn upgraded(client: OnUpgrade, pod: OnUpgrade, carried: Carried) {
    let Carried { running, permit, lent } = carried;
    // A tunnel lives long and says nothing of load: the pod has room for another request. A
    // connection of HTTP/1.1 is the tunnel's own by now; a stream of HTTP/2 keeps its place.
    drop(permit);
    match tokio::try_join!(client, pod) {
        Ok((client, pod)) => copy(TokioIo::new(client), TokioIo::new(pod)).await,
        Err(error) => tracing::debug!(%error, "an upgrade did not come about"),
    }
    drop((running, lent));
}

impl Forwarder {
    /// Holds a connection that speaks something else than HTTP until there is a pod for it.
    /// Nothing of what the client sent is read before.
    pub(crate) async fn tunnel(self: Arc<Self>, line: Line, client: Client, target: Arc<Target>, port: u16) {
        let running = Running::begin(Arc::clone(&target), Instant::now());
        if let Some(pod) = self.connect(&client, &target, port).await {
            copy(line, pod).await;
        }
        drop(running);
    }

    async fn connect(
        self: &Arc<Self>,
        client: &Client,
        target: &Arc<Target>,
        port: u16,
    ) -> Option<TcpStream> {
        let deadline = Instant::now() + self.options.hold;
        loop {
            let wake = || self.begin_waking(target);
            let permit = tokio::select! {
                biased;
                permit = target.acquire(port, deadline, &self.limits, wake) => permit,
                () = client.left() => return None,
            };
            let permit = match permit {
                Ok(permit) => permit,
                Err(refused) => {
                    tracing::debug!(service = %target.key(), ?refused, "a connection was given up");
                    return None;
                }
            };
            match self.pool.dial(permit.address).await {
                Ok(pod) => {
                    permit.reached();
                    target.answered();
                    return Some(pod);
                }
                Err(error) => {
                    tracing::debug!(address = %permit.address, %error, "a pod cannot be reached");
                    permit.unreachable();
                }
            }
        }
    }
}

async fn copy(mut client: impl AsyncRead + AsyncWrite + Unpin, mut pod: impl AsyncRead + AsyncWrite + Unpin) {
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut pod).await {
        tracing::debug!(%error, "a tunnel ended");
    }
}
