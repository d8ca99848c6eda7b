//! A way to an API server that can be cut.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Runtime,
    sync::watch::{self, Receiver, Sender},
};

/// Whoever comes this way is seen with this address.
pub const SEEN_AS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Whether anything passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Cut,
}

/// Forwards connections from a port of its own to a server on this machine, until it is cut.
pub struct Way {
    pub port: u16,
    link: Sender<Link>,
    _runtime: Runtime,
}

impl Way {
    /// A way to this port of 127.0.0.1.
    pub fn to(port: u16) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let own = listener.local_addr().unwrap().port();
        let (link, state) = watch::channel(Link::Up);
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(carry(stream, server, state.clone()))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        Self { port: own, link, _runtime: runtime }
    }

    /// From now on nothing passes in either direction, and nobody is told.
    pub fn cut(&self) {
        self.link.send_replace(Link::Cut);
    }

    /// New connections pass again. What was under way is lost.
    pub fn mend(&self) {
        self.link.send_replace(Link::Up);
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut link: Receiver<Link>) {
    let down = *link.borrow() == Link::Cut;
    if !down {
        let Ok(mut server) = connect(server).await else { return };
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = link.wait_for(|link| *link == Link::Cut) => {}
        }
        let _ = link.wait_for(|link| *link == Link::Up).await;
        return;
    }
    let _ = link.wait_for(|link| *link == Link::Up).await;
}

async fn connect(server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((SEEN_AS, 0)))?;
    socket.connect(server).await
}
