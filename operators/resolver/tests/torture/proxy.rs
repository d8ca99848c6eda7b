//! The service proxy: leads connections where it last heard that they belong.

use crate::service::{Service, Way};
use crate::{World, lock};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Starts a proxy for a service.
pub(crate) async fn start(service: Arc<Service>, world: Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let all = match service.way() {
                Way::Pods(pods) => pods,
                Way::Resolvers => lock(&world.resolvers).iter().map(|listed| listed.0).collect(),
            };
            let Some(&chosen) = all.get(world.random(all.len().max(1) as u64) as usize) else { continue };
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(chosen).await else { return };
                let _ = server.set_nodelay(true);
                let _ = client.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}
