//! The few network settings a pod needs, spoken to the kernel over rtnetlink.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

const HEADER: usize = 16;
const REQUEST: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const CREATE: u16 = REQUEST | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;

/// The hardware address of the bridge. Without one of its own it has the lowest of its links, and so
/// another whenever that link goes: whoever remembers the old one speaks to nobody for a while.
const BRIDGE_ADDRESS: [u8; 6] = [0x02, 0x53, 0x74, 0x65, 0x65, 0x72];
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// A connection to the kernel's routing tables of the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens it in the current network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Switches a link on.
    pub(crate) fn up(&mut self, link: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, REQUEST);
        request.link(link, libc::IFF_UP as u32);
        self.ask(request)
    }

    /// Creates a bridge.
    pub(crate) fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, CREATE);
        request.link(0, 0);
        request.text(libc::IFLA_IFNAME, name);
        request.attribute(libc::IFLA_ADDRESS, &BRIDGE_ADDRESS);
        request.nest(libc::IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
        self.ask(request)
    }

    /// Creates a pair of links: `name` here, on the bridge `master`, and `peer` in the network
    /// namespace of the process `pid`.
    pub(crate) fn add_pair(&mut self, name: &str, master: u32, peer: &str, pid: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, CREATE);
        request.link(0, libc::IFF_UP as u32);
        request.text(libc::IFLA_IFNAME, name);
        request.number(libc::IFLA_MASTER, master);
        request.nest(libc::IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |inner| {
                    inner.link(0, 0);
                    inner.text(libc::IFLA_IFNAME, peer);
                    inner.number(libc::IFLA_NET_NS_PID, pid);
                });
            });
        });
        self.ask(request)
    }

    /// Removes a link.
    pub(crate) fn remove(&mut self, link: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_DELLINK, REQUEST);
        request.link(link, 0);
        self.ask(request)
    }

    /// Gives a link an address.
    pub(crate) fn add_address(&mut self, link: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWADDR, CREATE);
        request.bytes(&[libc::AF_INET as u8, prefix, 0, libc::RT_SCOPE_UNIVERSE]);
        request.bytes(&link.to_ne_bytes());
        request.attribute(libc::IFA_LOCAL, &address.octets());
        request.attribute(libc::IFA_ADDRESS, &address.octets());
        self.ask(request)
    }

    /// Sends everything without a better route to `gateway`.
    pub(crate) fn add_default_route(&mut self, link: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWROUTE, CREATE);
        request.route(0, libc::RT_TABLE_MAIN, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST);
        request.attribute(libc::RTA_GATEWAY, &gateway.octets());
        request.number(libc::RTA_OIF, link);
        self.ask(request)
    }

    /// Makes a whole range local, so that any of its addresses can be listened on.
    pub(crate) fn add_local_range(&mut self, link: u32, network: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWROUTE, CREATE);
        request.route(prefix, libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
        request.attribute(libc::RTA_DST, &network.octets());
        request.number(libc::RTA_OIF, link);
        self.ask(request)
    }

    fn ask(&mut self, request: Request) -> io::Result<()> {
        self.sequence += 1;
        let bytes = request.finish(self.sequence);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.socket.as_raw_fd(), &bytes, &kernel, MsgFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        verdict(&answer[..length])
    }
}

/// The number of a link of the current network namespace.
pub(crate) fn link(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

/// Reads the kernel's answer: an error message whose code 0 means success.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "short answer from the kernel");
    let kind = answer.get(4..6).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer
        .get(HEADER..HEADER + 4)
        .and_then(|b| b.try_into().ok())
        .map(i32::from_ne_bytes)
        .ok_or_else(short)?;
    if kind != Some(libc::NLMSG_ERROR as u16) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected answer from the kernel"));
    }
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

/// A message under construction.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Request { bytes }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `struct ifinfomsg`
    fn link(&mut self, index: u32, flags: u32) {
        self.bytes(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.bytes(&index.to_ne_bytes());
        self.bytes(&flags.to_ne_bytes());
        self.bytes(&flags.to_ne_bytes());
    }

    /// `struct rtmsg`
    fn route(&mut self, prefix: u8, table: u8, scope: u8, kind: u8) {
        let family = libc::AF_INET as u8;
        self.bytes(&[family, prefix, 0, 0, table, libc::RTPROT_BOOT, scope, kind]);
        self.bytes(&0_u32.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.bytes(&length.to_ne_bytes());
        self.bytes(&kind.to_ne_bytes());
        self.bytes(value);
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.bytes(&[0; 4]);
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_padded_to_four_bytes_and_its_length_is_not() {
        let mut request = Request::new(libc::RTM_NEWLINK, REQUEST);
        request.text(libc::IFLA_IFNAME, "eth0");
        let attribute = &request.bytes[HEADER..];
        assert_eq!(attribute.len(), 12);
        assert_eq!(u16::from_ne_bytes([attribute[0], attribute[1]]), 9);
    }

    #[test]
    fn a_nested_attribute_counts_what_is_inside() {
        let mut request = Request::new(libc::RTM_NEWLINK, REQUEST);
        request.nest(libc::IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
        let nested = &request.bytes[HEADER..];
        assert_eq!(usize::from(u16::from_ne_bytes([nested[0], nested[1]])), nested.len());
    }

    #[test]
    fn an_error_code_becomes_that_error() {
        let mut answer = vec![0_u8; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(verdict(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let error = verdict(&answer).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(verdict(&[]).is_err());
    }
}
