//! What is asked of a proxy.

use crate::Outcome;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The name under which the service is asked for.
pub(crate) const HOST: &str = "web.shop.svc.cluster.local";
const CLIENTS: usize = 32;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Small answers over kept connections.
    KeepAlive,
    /// The same, a connection for each.
    Fresh,
    /// Answers of 1 MiB.
    Down,
    /// Bodies of 10 MiB.
    Up,
    /// Small answers over one connection of HTTP/2, 32 at a time.
    Two,
    /// Streams of events, of which the first counts.
    Events,
}

impl Load {
    /// Sends this many requests; the median time to the first byte of the body.
    pub(crate) fn run(self, address: SocketAddr, requests: usize) -> Outcome<Duration> {
        match self {
            Self::Two => two(address, requests).map(|()| Duration::ZERO),
            Self::Events => {
                let mut delays = Vec::new();
                for _ in 0..requests {
                    let mut stream = TcpStream::connect(address)?;
                    let began = Instant::now();
                    stream.write_all(head("GET /events", "connection: close\r\n").as_bytes())?;
                    read_until(&mut stream, |answer| answer.windows(5).any(|window| window == b"first"))?;
                    delays.push(began.elapsed());
                }
                delays.sort();
                Ok(delays[delays.len() / 2])
            }
            _ => {
                let clients = if matches!(self, Self::Down | Self::Up) { 4 } else { CLIENTS };
                let left = Arc::new(AtomicUsize::new(requests));
                let threads: Vec<_> = (0..clients)
                    .map(|_| {
                        let left = Arc::clone(&left);
                        thread::spawn(move || self.client(address, &left).map_err(|error| error.to_string()))
                    })
                    .collect();
                for thread in threads {
                    thread.join().map_err(|_| "a client panicked")??;
                }
                Ok(Duration::ZERO)
            }
        }
    }

    fn client(self, address: SocketAddr, left: &AtomicUsize) -> Outcome<()> {
        let body = vec![b'x'; 10 << 20];
        let (request, body, length) = match self {
            Self::Fresh => (head("GET /", "connection: close\r\n"), &[][..], 256),
            Self::Down => (head("GET /1m", ""), &[][..], 1 << 20),
            Self::Up => (head("POST /up", "content-length: 10485760\r\n"), &body[..], 8),
            _ => (head("GET /", ""), &[][..], 256),
        };
        let mut kept = None;
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => connect(address)?,
            };
            stream.write_all(request.as_bytes())?;
            stream.write_all(body)?;
            read_until(&mut stream, |answer| {
                let end = answer.windows(4).take(1024).position(|window| window == b"\r\n\r\n");
                end.is_some_and(|end| answer.len() >= end + 4 + length)
            })?;
            if self != Self::Fresh {
                kept = Some(stream);
            }
        }
        Ok(())
    }
}

pub(crate) fn head(line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: bench\r\naccept: */*\r\n{more}\r\n")
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn read_until(stream: &mut TcpStream, done: impl Fn(&[u8]) -> bool) -> Outcome<()> {
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while !done(&answer) {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(format!(
                "cut off after {:?}",
                String::from_utf8_lossy(&answer[..answer.len().min(300)])
            )
            .into());
        }
        answer.extend_from_slice(&buffer[..read]);
    }
    if answer.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    Err(format!("refused: {:?}", String::from_utf8_lossy(&answer[..answer.len().min(300)])).into())
}

/// Requests over one connection of HTTP/2, many at a time.
fn two(address: SocketAddr, requests: usize) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let left = Arc::new(AtomicUsize::new(requests));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (mut sender, left) = (sender.clone(), Arc::clone(&left));
            clients.spawn(async move {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let request = Request::get(format!("http://{HOST}/")).body(Empty::<Bytes>::new());
                    let request = request.map_err(|error| error.to_string())?;
                    sender.ready().await.map_err(|error| error.to_string())?;
                    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
                    let status = answer.status();
                    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
                    if !status.is_success() || body.to_bytes().len() != 256 {
                        return Err(format!("refused: {status}"));
                    }
                }
                Ok(())
            });
        }
        while let Some(done) = clients.join_next().await {
            done??;
        }
        Ok(())
    })
}
