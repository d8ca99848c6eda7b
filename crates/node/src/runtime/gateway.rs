//! The node's side of the process that holds the pod network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Child;

use tokio::sync::Mutex;

use super::channel::{AsyncChannel, DESCRIPTORS, Packet};
use super::message::{FromGateway, GatewaySetup, Interface, Setup, ToGateway};
use super::network::{GATEWAY, POD_PREFIX};
use super::spawner::{Helper, Spawner};

/// Hands out sockets of the pod network.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Child,
    /// One request at a time; answers come in order.
    conversation: Mutex<Conversation>,
}

#[derive(Debug)]
struct Conversation {
    channel: AsyncChannel,
    /// Sockets that were handed out ahead of need.
    spare: Vec<OwnedFd>,
}

impl Gateway {
    /// Starts the process and waits until the network stands.
    pub(super) async fn start(spawner: &Spawner, services: (Ipv4Addr, u8)) -> io::Result<Self> {
        let Helper { process, channel } = spawner.spawn("gateway").await?;
        let setup = GatewaySetup { address: GATEWAY, prefix: POD_PREFIX, services };
        let mut gateway =
            Gateway { process, conversation: Mutex::new(Conversation { channel, spare: Vec::new() }) };
        match gateway.begin(setup).await {
            Ok(()) => Ok(gateway),
            Err(error) => {
                let _ = gateway.process.kill();
                let _ = gateway.process.wait();
                Err(error)
            }
        }
    }

    async fn begin(&mut self, setup: GatewaySetup) -> io::Result<()> {
        let conversation = self.conversation.get_mut();
        conversation.channel.send(&Setup::Gateway(setup), &[]).await?;
        conversation.answer().await.map(drop)
    }

    /// The process that holds the namespaces.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Gives the network namespace of a process an interface on the pod network.
    pub(super) async fn attach(&self, pid: u32, address: Ipv4Addr) -> io::Result<Interface> {
        let [_, _, high, low] = address.octets();
        let link = format!("pod{high}x{low}");
        self.ask(&ToGateway::Attach { pid, link }).await?;
        Ok(Interface { address, prefix: POD_PREFIX, gateway: GATEWAY })
    }

    /// A listener inside the pod network.
    pub(super) async fn listen(&self, address: SocketAddr) -> io::Result<std::net::TcpListener> {
        let socket = self.ask(&ToGateway::Listen { address }).await?.pop();
        socket.map(Into::into).ok_or_else(|| io::Error::other("the gateway sent no listener"))
    }

    /// A datagram socket inside the pod network.
    pub(super) async fn bind(&self, address: SocketAddr) -> io::Result<std::net::UdpSocket> {
        let socket = self.ask(&ToGateway::Bind { address }).await?.pop();
        socket.map(Into::into).ok_or_else(|| io::Error::other("the gateway sent no socket"))
    }

    /// An unconnected socket of the pod network.
    pub(super) async fn socket(&self) -> io::Result<OwnedFd> {
        let mut conversation = self.conversation.lock().await;
        if let Some(socket) = conversation.spare.pop() {
            return Ok(socket);
        }
        conversation.channel.send(&ToGateway::Sockets { count: DESCRIPTORS }, &[]).await?;
        conversation.spare = conversation.answer().await?;
        conversation.spare.pop().ok_or_else(|| io::Error::other("the gateway sent no socket"))
    }

    async fn ask(&self, request: &ToGateway) -> io::Result<Vec<OwnedFd>> {
        let conversation = self.conversation.lock().await;
        conversation.channel.send(request, &[]).await?;
        conversation.answer().await
    }
}

impl Conversation {
    async fn answer(&self) -> io::Result<Vec<OwnedFd>> {
        match self.channel.receive::<FromGateway>().await? {
            Some(Packet { message: FromGateway::Failed { message }, .. }) => Err(io::Error::other(message)),
            Some(packet) => Ok(packet.descriptors),
            None => Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the process that holds the pod network is gone; restart the node",
            )),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
