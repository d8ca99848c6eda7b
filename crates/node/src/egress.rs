//! The API server's way into the pod network.
//!
//! A real API server calls webhooks at the address of a Service, which exists only inside the pod network.
//! Kubernetes has a place for whoever can get there: an egress selector that asks a proxy on a unix socket
//! with HTTP `CONNECT`. This is that proxy. It leads to pods, Services and loopback (the kubelet's
//! endpoints), and nowhere else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::runtime::Network;

/// How long a request may take to come in, and its target to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request that is read.
const LONGEST: usize = 8 * 1024;
/// Connections at a time; more wait to be accepted.
const CONNECTIONS: usize = 512;

/// Listens on a socket that only this user may open; one that an earlier node left is replaced.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the node ends.
pub(crate) async fn serve(
    listener: UnixListener,
    network: Network,
    services: (Ipv4Addr, u8),
    shutdown: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let network = network.clone();
                    connections.spawn(async move {
                        if let Err(error) = carry(stream, &network, services).await {
                            tracing::debug!(%error, "a connection of the API server ended");
                        }
                        drop(permit);
                    });
                }
                // Out of descriptors: let some connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(mut caller: UnixStream, network: &Network, services: (Ipv4Addr, u8)) -> io::Result<()> {
    let head = tokio::time::timeout(PATIENCE, head(&mut caller)).await??;
    let opened = match target(&head).map(|target| (target, way(target.ip(), services))) {
        Ok((target, Some(way))) => tokio::time::timeout(PATIENCE, open(target, way, network)).await?,
        Ok((target, None)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{target} is neither a pod, a Service nor on this machine"),
        )),
        Err(error) => Err(error),
    };
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let answer = refusal(&error);
            caller.write_all(answer.as_bytes()).await?;
            return caller.shutdown().await;
        }
    };
    caller.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    tokio::io::copy_bidirectional(&mut caller, &mut opened).await.map(drop)
}

/// A request up to its empty line. Nothing follows before it is answered.
async fn head(caller: &mut UnixStream) -> io::Result<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        if read.len() >= LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too long"));
        }
        let mut some = [0; 1024];
        match caller.read(&mut some).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => read.extend_from_slice(&some[..length]),
        }
    }
    String::from_utf8(read).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the request is no text"))
}

/// Where a request wants to go: `CONNECT 10.96.0.5:443 HTTP/1.1`.
fn target(head: &str) -> io::Result<SocketAddr> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let address = match (words.next(), words.next()) {
        (Some("CONNECT"), Some(address)) => address.parse().ok(),
        _ => None,
    };
    address.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "expected CONNECT with an address and a port")
    })
}

/// How an address is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Like any pod, or from the host.
    Direct,
    /// From inside the pod network, where Services have their addresses.
    Inside,
}

fn way(address: IpAddr, (network, prefix): (Ipv4Addr, u8)) -> Option<Way> {
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
    match address {
        IpAddr::V4(v4) if u32::from(v4) & mask == u32::from(network) & mask => Some(Way::Inside),
        address if address.is_loopback() || crate::runtime::in_pod_network(address) => Some(Way::Direct),
        _ => None,
    }
}

async fn open(target: SocketAddr, way: Way, network: &Network) -> io::Result<TcpStream> {
    match way {
        Way::Direct => network.connect(target).await,
        Way::Inside => network.connect_inside(target).await,
    }
}

fn refusal(error: &io::Error) -> String {
    let status = match error.kind() {
        io::ErrorKind::InvalidInput => "400 Bad Request",
        io::ErrorKind::PermissionDenied => "403 Forbidden",
        _ => "502 Bad Gateway",
    };
    let text = error.to_string();
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 96, 0, 0), 16);

    #[test]
    fn only_pods_services_and_this_machine_are_reached() {
        let cases = [
            ("10.96.3.4", Some(Way::Inside)),
            ("10.97.0.1", None),
            ("10.244.0.7", Some(Way::Direct)),
            ("127.0.0.1", Some(Way::Direct)),
            ("::1", Some(Way::Direct)),
            ("192.0.2.1", None),
        ];
        for (address, expected) in cases {
            assert_eq!(way(address.parse().expect("an address"), SERVICES), expected, "{address}");
        }
    }

    #[test]
    fn a_request_names_its_target_in_the_first_line() {
        let head = "CONNECT 10.96.0.5:443 HTTP/1.1\r\nHost: 10.96.0.5:443\r\n\r\n";
        assert_eq!(target(head).expect("a target").to_string(), "10.96.0.5:443");
        for wrong in ["GET / HTTP/1.1", "CONNECT somewhere:1 HTTP/1.1", ""] {
            let error = target(wrong).expect_err("wrong");
            assert!(refusal(&error).starts_with("HTTP/1.1 400 "), "{wrong}");
        }
    }
}
