//! The connection to a client, with a way to see that the client has left.

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

/// A connection to a client.
pub(crate) struct Line {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

/// Who sent a request.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    read: Arc<OwnedReadHalf>,
}

impl Line {
    pub(crate) fn new(stream: TcpStream, address: SocketAddr) -> (Self, Client) {
        let (read, write) = stream.into_split();
        let read = Arc::new(read);
        let client = Client { address, read: Arc::clone(&read) };
        (Self { read, write }, client)
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
        loop {
            ready!(self.read.as_ref().as_ref().poll_read_ready(cx))?;
            match self.read.try_read_buf(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
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
