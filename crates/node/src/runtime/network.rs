//! Addresses of pods and the ways to reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use super::gateway::Gateway;

/// The range of pod addresses in the shared network.
pub(crate) const POD_NETWORK: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 0);
/// Length of its prefix.
pub(crate) const POD_PREFIX: u8 = 16;
/// The address of the network's own end.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);

/// Reaches pods' ports, wherever the pods are.
#[derive(Debug, Clone)]
pub struct Network {
    gateway: Option<Arc<Gateway>>,
    /// Ports that a pod could not listen on, and where it listens instead.
    redirects: Arc<RwLock<BTreeMap<SocketAddr, u16>>>,
}

impl Network {
    pub(super) fn new(gateway: Option<Gateway>) -> Self {
        Network { gateway: gateway.map(Arc::new), redirects: Arc::default() }
    }

    pub(super) fn gateway(&self) -> Option<&Gateway> {
        self.gateway.as_deref()
    }

    /// Connects to a pod or to anything on the host.
    ///
    /// # Errors
    /// When nothing answers there.
    pub async fn connect(&self, mut target: SocketAddr) -> io::Result<TcpStream> {
        if let Some(port) = self.redirected(target) {
            target.set_port(port);
        }
        match &self.gateway {
            Some(gateway) if in_pod_network(target.ip()) => {
                let socket: OwnedFd = gateway.socket().await?;
                TcpSocket::from_std_stream(std::net::TcpStream::from(socket)).connect(target).await
            }
            // Left in some EndpointSlice by a runtime with a pod network: such an address means
            // nothing on the host's own network and must not be looked for there.
            None if in_pod_network(target.ip()) => {
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, "this runtime has no pod network"))
            }
            _ => TcpStream::connect(target).await,
        }
    }

    /// Connects from inside the pod network, where Services have their addresses.
    ///
    /// # Errors
    /// When there is no pod network, or nothing answers there.
    pub(crate) async fn connect_inside(&self, target: SocketAddr) -> io::Result<TcpStream> {
        let gateway = self.gateway.as_ref().ok_or_else(no_network)?;
        let socket: OwnedFd = gateway.socket().await?;
        TcpSocket::from_std_stream(std::net::TcpStream::from(socket)).connect(target).await
    }

    fn redirected(&self, target: SocketAddr) -> Option<u16> {
        let redirects = self.redirects.read().unwrap_or_else(PoisonError::into_inner);
        redirects.get(&target).copied()
    }

    /// A port on which an unprivileged pod can listen for `port` of its address; connections to
    /// `port` go there from now on.
    pub(crate) fn redirect(&self, address: IpAddr, port: u16) -> u16 {
        const HIGHER: u16 = 10_000;
        if may_listen_on(port) {
            return port;
        }
        let instead = port.saturating_add(HIGHER);
        let mut redirects = self.redirects.write().unwrap_or_else(PoisonError::into_inner);
        redirects.insert(SocketAddr::new(address, port), instead);
        instead
    }

    /// The pod of this address is gone.
    pub(crate) fn forget(&self, address: IpAddr) {
        let mut redirects = self.redirects.write().unwrap_or_else(PoisonError::into_inner);
        redirects.retain(|known, _| known.ip() != address);
    }

    /// Whether pods have a network of their own, in which Services must be answered.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.gateway.is_some()
    }

    /// Listens at an address of the pod network.
    ///
    /// # Errors
    /// When there is no pod network, or the address is taken.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let gateway = self.gateway.as_ref().ok_or_else(no_network)?;
        TcpListener::from_std(gateway.listen(address).await?)
    }

    /// A datagram socket at an address of the pod network.
    ///
    /// # Errors
    /// When there is no pod network, or the address is taken.
    pub async fn bind(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        let gateway = self.gateway.as_ref().ok_or_else(no_network)?;
        UdpSocket::from_std(gateway.bind(address).await?)
    }
}

/// Whether the running system lets this user listen on a port of the host.
fn may_listen_on(port: u16) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let start = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024_u16);
    port >= start
}

fn no_network() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this runtime has no pod network")
}

pub(crate) fn in_pod_network(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[..2] == POD_NETWORK.octets()[..2])
}

/// Gives out the addresses of a range.
#[derive(Debug)]
pub(super) struct Addresses {
    base: u32,
    size: u32,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    taken: BTreeSet<u32>,
    /// Where the search for a free one goes on, so that an address is not reused at once.
    next: u32,
}

/// An address that returns to its range when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    address: Ipv4Addr,
    state: Arc<Mutex<State>>,
}

impl Lease {
    /// The address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let number = u32::from(self.address);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&number);
    }
}

impl Addresses {
    pub(super) fn new(network: Ipv4Addr, prefix: u8) -> Self {
        // Neither the network itself nor the gateway, nor the broadcast address at the end.
        Addresses {
            base: u32::from(network),
            size: (1_u32 << (32 - prefix)) - 1,
            state: Arc::new(Mutex::new(State { taken: BTreeSet::new(), next: 2 })),
        }
    }

    /// Takes the wanted address if it is free, else the next free one.
    pub(super) fn take(&self, wanted: Option<IpAddr>) -> io::Result<Lease> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = match wanted {
            Some(IpAddr::V4(address)) => Some(u32::from(address)),
            _ => None,
        };
        let usable = self.base + 2..self.base + self.size;
        let number = match wanted {
            Some(number) if usable.contains(&number) && !state.taken.contains(&number) => number,
            _ => self.search(&mut state)?,
        };
        state.taken.insert(number);
        Ok(Lease { address: Ipv4Addr::from(number), state: Arc::clone(&self.state) })
    }

    fn search(&self, state: &mut State) -> io::Result<u32> {
        for _ in 2..self.size {
            let number = self.base + state.next;
            state.next = if state.next + 1 >= self.size { 2 } else { state.next + 1 };
            if !state.taken.contains(&number) {
                return Ok(number);
            }
        }
        Err(io::Error::other("every pod address is taken; delete some pods"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_once_and_return_when_dropped() {
        let addresses = Addresses::new(Ipv4Addr::new(10, 0, 0, 0), 29);
        let taken: Vec<Lease> = (0..5).map(|_| addresses.take(None).expect("free")).collect();
        let mut numbers: Vec<Ipv4Addr> = taken.iter().map(Lease::address).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 5);
        assert!(addresses.take(None).is_err());
        drop(taken);
        assert!(addresses.take(None).is_ok());
    }

    #[test]
    fn a_restarted_pod_keeps_its_address_when_it_is_free() {
        let addresses = Addresses::new(POD_NETWORK, POD_PREFIX);
        let wanted = Some(IpAddr::V4(Ipv4Addr::new(10, 244, 7, 7)));
        let first = addresses.take(wanted).expect("free");
        assert_eq!(Some(IpAddr::V4(first.address())), wanted);
        let second = addresses.take(wanted).expect("another");
        assert_ne!(second.address(), first.address());
        let foreign = Some(IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)));
        let third = addresses.take(foreign).expect("another");
        assert!(in_pod_network(IpAddr::V4(third.address())));
    }
}
