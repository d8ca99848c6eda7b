//! The network that all pods share: a namespace with a bridge, held open by one process.
//!
//! Sockets belong to the namespace in which they were made, wherever they are used. So the node
//! reaches a pod by a socket that the gateway hands out, and answers a Service's address inside
//! the pod network by a listener that it hands out; no packet ever crosses to the host.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::CloneFlags;
use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};

use super::netlink::{Netlink, link};
use super::{step, unshare_as};
use crate::runtime::channel::{Channel, DESCRIPTORS};
use crate::runtime::message::{FromGateway, GatewaySetup, ToGateway};

const BRIDGE: &str = "pods";
/// Name of a pod's end of its link.
const POD_LINK: &str = "eth0";

/// Sets the network up and answers requests until the node is gone.
pub(super) fn run(channel: &Channel, setup: &GatewaySetup) -> io::Result<()> {
    unshare_as(0, 0, CloneFlags::CLONE_NEWNET)?;
    let mut netlink = Netlink::open()?;
    let bridge = lay_out(&mut netlink, setup)?;
    channel.send(&FromGateway::Ready, &[])?;
    while let Some(packet) = channel.receive::<ToGateway>()? {
        match answer(&mut netlink, bridge, &packet.message) {
            Ok(sockets) => {
                let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                channel.send(&FromGateway::Done, &descriptors)?;
            }
            Err(error) => {
                let message = error.to_string();
                channel.send(&FromGateway::Failed { message }, &[])?;
            }
        }
    }
    Ok(())
}

fn lay_out(netlink: &mut Netlink, setup: &GatewaySetup) -> io::Result<u32> {
    let loopback = link("lo")?;
    netlink.up(loopback).map_err(|error| step("loopback", error))?;
    netlink.add_bridge(BRIDGE).map_err(|error| step("bridge", error))?;
    let bridge = link(BRIDGE)?;
    netlink
        .add_address(bridge, setup.address, setup.prefix)
        .map_err(|error| step("bridge address", error))?;
    netlink.up(bridge).map_err(|error| step("bridge up", error))?;
    let (network, prefix) = setup.services;
    netlink.add_local_range(loopback, network, prefix).map_err(|error| step("service range", error))?;
    // Find out now, not with the first pod, whether links can be made.
    netlink.add_pair("probe0", bridge, "probe1", std::process::id()).map_err(|error| step("veth", error))?;
    netlink.remove(link("probe0")?)?;
    Ok(bridge)
}

fn answer(netlink: &mut Netlink, bridge: u32, request: &ToGateway) -> io::Result<Vec<OwnedFd>> {
    match request {
        ToGateway::Attach { pid, link } => {
            netlink.add_pair(link, bridge, POD_LINK, *pid)?;
            Ok(Vec::new())
        }
        ToGateway::Sockets { count } => {
            (0..(*count).min(DESCRIPTORS)).map(|_| new_socket(SockType::Stream)).collect()
        }
        ToGateway::Listen { address } => {
            let socket = new_socket(SockType::Stream)?;
            setsockopt(&socket, ReuseAddr, &true)?;
            bind_to(&socket, *address)?;
            listen(&socket, Backlog::new(1024)?)?;
            Ok(vec![socket])
        }
        ToGateway::Bind { address } => {
            let socket = new_socket(SockType::Datagram)?;
            bind_to(&socket, *address)?;
            Ok(vec![socket])
        }
    }
}

fn new_socket(kind: SockType) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Inet, kind, flags, None)?)
}

fn bind_to(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(())
}
