//! Requests that wait, and what happens when the pod comes.

use crate::load::head;
use crate::pod::Pod;
use crate::proxy::{Proxy, memory};
use crate::{Outcome, micros};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HELD: usize = 10_000;
const WAKES: usize = 1_000;

/// Prints what holding costs and how fast waking is.
pub(crate) fn measure(pod: &Pod) -> Outcome<()> {
    let mut resolver = Proxy::resolver(pod.address)?;
    let (each, last) = many(&mut resolver)?;
    println!(
        "{HELD} held requests: {each} bytes each, all answered {} after the pod was ready",
        micros(last)
    );
    let mut resolver = Proxy::resolver(pod.address)?;
    let delays = wakes(&mut resolver)?;
    let at = |share: f64| micros(delays[((delays.len() - 1) as f64 * share) as usize]);
    println!("ready to first byte, {WAKES} wakes: p50 {}, p99 {}, max {}", at(0.5), at(0.99), at(1.0));
    Ok(())
}

/// Bytes per held request, and the time from ready to the last answer.
fn many(resolver: &mut Proxy) -> Outcome<(u64, Duration)> {
    resolver.child.tell("sleep")?;
    wait_held(resolver.internal, 0)?;
    let before = memory(resolver.child.pid())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = resolver.address;
    let mut clients = tokio::task::JoinSet::new();
    let connected = runtime.block_on(async {
        for _ in 0..HELD {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream.write_all(head("GET /", "").as_bytes()).await?;
            clients.spawn(async move {
                let mut buffer = [0; 1024];
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                (stream, buffer[..read].starts_with(b"HTTP/1.1 200"))
            });
        }
        std::io::Result::Ok(())
    });
    connected?;
    wait_held(resolver.internal, HELD)?;
    let each = memory(resolver.child.pid())?.saturating_sub(before) / HELD as u64;
    let began = Instant::now();
    resolver.child.tell("ready")?;
    runtime.block_on(async {
        // Streams are kept to the end, so that closing them costs nothing in between.
        let mut streams = Vec::new();
        while let Some(done) = clients.join_next().await {
            let (stream, answered) = done?;
            if !answered {
                return Err("a held request was not answered".into());
            }
            streams.push(stream);
        }
        Ok((each, began.elapsed()))
    })
}

/// The time from the pod's readiness to the first byte of the answer, in order.
fn wakes(resolver: &mut Proxy) -> Outcome<Vec<Duration>> {
    let mut delays = Vec::new();
    for _ in 0..WAKES {
        resolver.child.tell("sleep")?;
        wait_ready(resolver.internal, 0)?;
        let mut stream = TcpStream::connect(resolver.address)?;
        stream.write_all(head("GET /", "connection: close\r\n").as_bytes())?;
        wait_held(resolver.internal, 1)?;
        let began = Instant::now();
        resolver.child.tell("ready")?;
        let mut first = [0; 1];
        stream.read_exact(&mut first)?;
        delays.push(began.elapsed());
    }
    delays.sort();
    Ok(delays)
}

fn wait_held(internal: SocketAddr, count: usize) -> Outcome<()> {
    wait_for(internal, &format!("\"held\":{count},"))
}

fn wait_ready(internal: SocketAddr, count: usize) -> Outcome<()> {
    wait_for(internal, &format!("\"ready\":{count},"))
}

fn wait_for(internal: SocketAddr, text: &str) -> Outcome<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let mut stream = TcpStream::connect(internal)?;
        stream.write_all(head("GET /activity", "connection: close\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.contains(text) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("waited for {text} in vain: {answer}").into());
        }
    }
}
