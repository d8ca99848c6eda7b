//! Prints what a request costs the resolver, in microseconds of processor time.
//!
//! Pods, resolver and clients run on a thread each, and only the resolver's is measured, from
//! `/proc`: `cargo run --release -p steersman-resolver --example cpu`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use steersman_resolver::{Backend, Directory, Options, Route, ServiceKey, ServicePort, Wake, Waking, serve};

const CLIENTS: usize = 32;
const SECONDS: u64 = 4;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 256\r\n\r\n";

struct Awake;

impl Wake for Awake {
    fn wake<'a>(&'a self, _: &'a ServiceKey) -> Waking<'a> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pod = pod()?;
    let (resolver, thread_id) = resolver(pod)?;
    let mut out = std::io::stdout();
    for (name, keep_alive) in [("keep-alive", true), ("fresh connections", false)] {
        let before = cpu(thread_id)?;
        let began = Instant::now();
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| thread::spawn(move || client(resolver, keep_alive))).collect();
        let mut requests = 0_u64;
        for client in clients {
            requests += client.join().map_err(|_| "a client panicked")??;
        }
        let spent = cpu(thread_id)? - before;
        let each = spent.as_secs_f64() * 1e6 / requests.max(1) as f64;
        let rate = requests as f64 / began.elapsed().as_secs_f64();
        writeln!(out, "{name}: {each:.1} µs of CPU per request, {rate:.0} requests/s")?;
    }
    Ok(())
}

/// A pod that answers every request with 256 bytes, a thread per connection.
fn pod() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answer = ANSWER.to_vec();
    answer.extend_from_slice(&[b'x'; 256]);
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// A resolver on a thread of its own, and the id of that thread.
fn resolver(pod: SocketAddr) -> Result<(SocketAddr, u32), Box<dyn std::error::Error>> {
    let proxy = TcpListener::bind("127.0.0.1:0")?;
    let internal = TcpListener::bind("127.0.0.1:0")?;
    proxy.set_nonblocking(true)?;
    internal.set_nonblocking(true)?;
    let address = proxy.local_addr()?;
    let directory = Directory::new();
    let backend = Backend { address: pod.ip(), ports: BTreeMap::from([(80, pod.port())]) };
    let ports = vec![ServicePort { number: 80, name: String::new() }];
    directory
        .set(&ServiceKey::new("shop", "web"), Route { ports, backends: vec![backend], ..Route::default() });
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || -> std::io::Result<()> {
        let id = std::fs::read_link("/proc/thread-self")?;
        let id = id.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or_default();
        let _ = tell.send(id);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let (proxy, internal) =
                (tokio::net::TcpListener::from_std(proxy)?, tokio::net::TcpListener::from_std(internal)?);
            serve(proxy, internal, directory, Options::new(Arc::new(Awake)), Default::default()).await
        })
    });
    Ok((address, told.recv()?))
}

/// Sends requests for a while, and says how many.
fn client(resolver: SocketAddr, keep_alive: bool) -> std::io::Result<u64> {
    let request: &[u8] = match keep_alive {
        true => b"GET / HTTP/1.1\r\nhost: web.shop\r\n\r\n",
        false => b"GET / HTTP/1.1\r\nhost: web.shop\r\nconnection: close\r\n\r\n",
    };
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut count = 0;
    let mut stream = None;
    let mut buffer = [0; 4096];
    while Instant::now() < end {
        let connection = match &mut stream {
            Some(connection) => connection,
            None => stream.insert(TcpStream::connect(resolver)?),
        };
        connection.write_all(request)?;
        let mut answer = Vec::new();
        while !complete(&answer) {
            let read = connection.read(&mut buffer)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&buffer[..read]);
        }
        count += 1;
        if !keep_alive {
            stream = None;
        }
    }
    Ok(count)
}

fn complete(answer: &[u8]) -> bool {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    end.is_some_and(|end| answer.len() >= end + 4 + 256)
}

/// The processor time of a thread so far, at a hundredth of a second.
fn cpu(thread: u32) -> Result<Duration, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))?;
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}
