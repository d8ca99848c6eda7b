//! Packets of JSON with file descriptors over a pair of unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The largest message. Anything that may grow (environments) travels as a file instead.
const PACKET: usize = 32 * 1024;
/// The most descriptors that travel beside one message.
pub(crate) const DESCRIPTORS: usize = 16;

/// A message as it arrived: its bytes and what travelled with it.
#[derive(Debug)]
pub(crate) struct Packet<T> {
    pub(crate) message: T,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Makes a connected pair: the node's end and the one for the process it starts.
pub(crate) fn pair() -> io::Result<(AsyncChannel, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    // SAFETY: an `OwnedFd` keeps the same descriptor open until it is dropped.
    #[allow(unsafe_code)]
    let ours = unsafe { AsyncFd::register(ours) }?;
    Ok((AsyncChannel(ours), theirs))
}

/// The node's end; never blocks a thread.
#[derive(Debug)]
pub(crate) struct AsyncChannel(AsyncFd<OwnedFd>);

impl AsyncChannel {
    /// Sends one message.
    pub(crate) async fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = encode(message)?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        self.0.async_io(Interest::WRITABLE, |fd| send_raw(fd.as_fd(), &bytes, &raw)).await
    }

    /// Waits for the next message; `None` when the other side is gone. Cancel safe.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Packet<T>>> {
        let received = self.0.async_io(Interest::READABLE, |fd| receive_raw(fd.as_fd())).await;
        decode(received)
    }
}

/// The started process's end; blocks, because that process has nothing else to do.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Takes over a descriptor made by [`pair`].
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Channel(descriptor)
    }

    /// Sends one message.
    pub(crate) fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        send_raw(self.0.as_fd(), &encode(message)?, &raw)
    }

    /// Waits for the next message; `None` when the node is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Packet<T>>> {
        decode(receive_raw(self.0.as_fd()))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > PACKET {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("message of {} bytes is larger than {PACKET}", bytes.len()),
        ));
    }
    Ok(bytes)
}

type Raw = (Vec<u8>, Vec<OwnedFd>);

fn decode<T: DeserializeOwned>(received: io::Result<Raw>) -> io::Result<Option<Packet<T>>> {
    match received {
        Ok((bytes, _)) if bytes.is_empty() => Ok(None),
        Ok((bytes, descriptors)) => {
            Ok(Some(Packet { message: serde_json::from_slice(&bytes)?, descriptors }))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

fn send_raw(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)
        {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive_raw(socket: BorrowedFd<'_>) -> io::Result<Raw> {
    let mut buffer = vec![0_u8; PACKET];
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    loop {
        let mut vectors = [IoSliceMut::new(&mut buffer)];
        match recvmsg::<()>(socket.as_raw_fd(), &mut vectors, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Ok(message) => {
                let length = message.bytes;
                let mut descriptors = Vec::new();
                for control in message.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(raw) = control {
                        // SAFETY: the kernel has just made these descriptors for this process;
                        // nothing else knows their numbers.
                        #[allow(unsafe_code)]
                        descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                    }
                }
                buffer.truncate(length);
                return Ok((buffer, descriptors));
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_brings_its_descriptors_along() {
        let (ours, theirs) = pair().expect("socket pair");
        let theirs = Channel::new(theirs);
        let file = tempfile::tempfile().expect("temporary file");
        ours.send(&"hello", &[file.as_fd()]).await.expect("sent");
        let packet: Packet<String> = theirs.receive().expect("received").expect("a message");
        assert_eq!(packet.message, "hello");
        assert_eq!(packet.descriptors.len(), 1);
    }

    #[tokio::test]
    async fn a_closed_end_reads_as_the_end() {
        let (ours, theirs) = pair().expect("socket pair");
        drop(theirs);
        assert!(ours.receive::<String>().await.expect("received").is_none());
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_is_refused_before_it_is_sent() {
        let (ours, _theirs) = pair().expect("socket pair");
        let error = ours.send(&"x".repeat(PACKET), &[]).await.expect_err("too large");
        assert!(error.to_string().contains("larger than"));
    }
}
