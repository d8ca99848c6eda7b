//! The resolver beside nginx, on this machine, in one run.
//!
//! `cargo bench --package steersman-resolver` runs it. The proxy under test has a core of its own, load
//! and pod share another; rounds alternate between the two proxies, medians are printed, and the
//! processor time of a request is read from `/proc`, so that a noisy machine blurs it little.
//! Figures go into `bench/README.md` with the command that made them.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, reason = "nobody calls it")]

mod held;
mod load;
mod pod;
mod proxy;

use load::Load;
use proxy::Proxy;
use std::error::Error;
use std::time::Duration;

/// How often each case runs on each proxy.
const ROUNDS: usize = 5;
/// Where load and pod run; the proxy has core 0.
const LOAD_CORE: &str = "1";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("resolver") => proxy::run_resolver(arguments.get(2).ok_or("the pod's address is missing")?),
        Some("pod") => pod::run(),
        // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
        _ if !arguments.iter().any(|argument| argument == "--bench") => Ok(()),
        _ => {
            let only = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
            compare(only.map(String::as_str))
        }
    }
}

fn compare(only: Option<&str>) -> Outcome<()> {
    proxy::pin_self(LOAD_CORE)?;
    let pod = pod::Pod::start(LOAD_CORE)?;
    let ours = Proxy::resolver(pod.address)?;
    let nginx = match xtask::parts::nginx() {
        Ok(nginx) => Some(Proxy::nginx(&nginx.path, pod.address)?),
        Err(missing) => {
            println!("nginx was not measured: {missing}");
            None
        }
    };
    let cases = [
        ("keep-alive, 256 B", Load::KeepAlive, 20_000),
        ("fresh connections", Load::Fresh, 6_000),
        ("1 MiB down", Load::Down, 400),
        ("10 MiB up", Load::Up, 40),
        ("h2c, 32 streams", Load::Two, 20_000),
        ("SSE, first event", Load::Events, 200),
    ];
    println!("| case | resolver | nginx | ratio |\n|---|---|---|---|");
    for (name, load, requests) in cases {
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            mine.push(ours.measure(load, requests)?);
            if let Some(nginx) = &nginx {
                theirs.push(nginx.measure(load, requests)?);
            }
        }
        let (mine, theirs) = (median(mine), median(theirs));
        let ratio = theirs.as_secs_f64();
        let ratio = if ratio > 0.0 { mine.as_secs_f64() / ratio } else { 0.0 };
        let unit = if load == Load::Events { "median delay" } else { "CPU per request" };
        println!("| {name}, {unit} | {} | {} | {ratio:.2} |", micros(mine), micros(theirs));
    }
    if only.is_none_or(|only| "held".contains(only)) {
        held::measure(&pod)?;
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1000.0) }
}
