//! The connection to a client, with a way to see that the client has left.

use crate::ports::Door;
use hyper::header::HeaderValue;
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
        let stream = self.read.as_ref().as_ref();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let (room, before) = (buffer.remaining(), buffer.filled().len());
            // A read that did not fill the buffer has emptied the socket. Saying that it would
            // block makes the next one wait for an event instead of asking the kernel in vain.
            let read = stream.try_io(Interest::READABLE, || {
                let read = stream.try_read_buf(buffer)?;
                if read > 0 && read < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if buffer.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
                Ok(_) => return Poll::Ready(Ok(())),
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
