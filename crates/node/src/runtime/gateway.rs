//! The node's side of the process that holds the pod network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Child;

use serde::Serialize;
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
    /// Answers still to come; more than one when someone stopped waiting for theirs.
    outstanding: usize,
    /// Sockets that were handed out ahead of need.
    spare: Vec<OwnedFd>,
}

impl Gateway {
    /// Starts the process and waits until the network stands.
    pub(super) async fn start(spawner: &Spawner, services: (Ipv4Addr, u8)) -> io::Result<Self> {
        let Helper { process, channel } = spawner.spawn("gateway").await?;
        let setup = GatewaySetup { address: GATEWAY, prefix: POD_PREFIX, services };
        let mut gateway = Gateway { process, conversation: Mutex::new(Conversation::new(channel)) };
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
        self.conversation.get_mut().ask(&Setup::Gateway(setup)).await.map(drop)
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
        conversation.spare = conversation.ask(&ToGateway::Sockets { count: DESCRIPTORS }).await?;
        conversation.spare.pop().ok_or_else(|| io::Error::other("the gateway sent no socket"))
    }

    async fn ask(&self, request: &ToGateway) -> io::Result<Vec<OwnedFd>> {
        self.conversation.lock().await.ask(request).await
    }
}

impl Conversation {
    fn new(channel: AsyncChannel) -> Self {
        Conversation { channel, outstanding: 0, spare: Vec::new() }
    }

    /// Asks and waits for the answer. Cancel safe: a probe that runs out of time leaves an answer
    /// behind, and the next one to ask must not take it for its own.
    async fn ask<T: Serialize>(&mut self, request: &T) -> io::Result<Vec<OwnedFd>> {
        self.channel.send(request, &[]).await?;
        self.outstanding += 1;
        let packet = loop {
            let packet = self.channel.receive::<FromGateway>().await?;
            self.outstanding -= 1;
            if self.outstanding == 0 || packet.is_none() {
                break packet;
            }
        };
        match packet {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::super::channel::{Channel, pair};
    use super::*;

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_goes_to_nobody_else() {
        let (ours, theirs) = pair().expect("socket pair");
        let theirs = Channel::new(theirs);
        let mut conversation = Conversation::new(ours);
        for name in ["first", "second"] {
            timeout(Duration::ZERO, conversation.ask(&name)).await.expect_err("no answer yet");
        }
        for name in ["first", "second"] {
            assert_eq!(theirs.receive::<String>().expect("received").expect("asked").message, name);
            let message = format!("the answer to the {name}");
            theirs.send(&FromGateway::Failed { message }, &[]).expect("answered");
        }
        theirs.send(&FromGateway::Done, &[]).expect("answered");
        conversation.ask(&"third").await.expect("the third's own answer");
    }
}
