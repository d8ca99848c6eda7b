//! The connection to a client, with a way to see that the client has left.

use crate::ports::Door;
use hyper::header::HeaderValue;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// How often a held request with an unread body looks whether its client is still there. Without
/// a body the next read would tell at once; with one it must not be made.
const LOOK: Duration = Duration::from_millis(250);

/// How much is read at most before it is known what a client speaks.
const FIRST: usize = 1024;

/// A connection to a client.
pub(crate) struct Line {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// What was read to see what the client speaks, and is still to be handed on.
    first: Vec<u8>,
}

/// Who sent a request.
pub(crate) struct Client {
    /// Its address as it is written into requests.
    pub(crate) address: HeaderValue,
    /// By which door it came in.
    pub(crate) door: Door,
    read: Arc<OwnedReadHalf>,
}

impl Line {
    pub(crate) fn new(stream: TcpStream, address: SocketAddr, door: Door) -> (Self, Client) {
        let (read, write) = stream.into_split();
        let read = Arc::new(read);
        let text = HeaderValue::try_from(address.ip().to_canonical().to_string());
        let address = text.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let client = Client { address, door, read: Arc::clone(&read) };
        (Self { read, write, first: Vec::new() }, client)
    }

    /// The first bytes that the client sent, more of them with every call; none once it has closed.
    pub(crate) async fn listen(&mut self) -> io::Result<&[u8]> {
        loop {
            poll_fn(|cx| self.read.as_ref().as_ref().poll_read_ready(cx)).await?;
            let mut space = [0; FIRST];
            let mut buffer = ReadBuf::new(&mut space);
            match self.read(&mut buffer) {
                Ok(()) if buffer.filled().is_empty() => return Ok(&[]),
                Ok(()) => {
                    self.first.extend_from_slice(buffer.filled());
                    return Ok(&self.first);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is there.
    fn read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let stream = self.read.as_ref().as_ref();
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        // A read that did not fill the buffer has emptied the socket. Saying that it would
        // block makes the next one wait for an event instead of asking the kernel in vain.
        let read = stream.try_io(Interest::READABLE, || {
            let read = stream.try_read_buf(buffer)?;
            if read > 0 && read < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if buffer.filled().len() > before { Ok(()) } else { read }
    }
}

impl Client {
    /// Resolves once the client has closed its side, whatever it sent before that.
    pub(crate) async fn left(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let ready = tokio::time::timeout(Duration::ZERO, self.read.ready(Interest::READABLE)).await;
            match ready {
                Ok(Ok(ready)) if ready.is_read_closed() => return,
                Ok(Err(_)) => return,
                _ => {}
            }
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let size = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..size]);
            this.first = this.first.split_off(size);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(this.read.as_ref().as_ref().poll_read_ready(cx))?;
            match this.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
