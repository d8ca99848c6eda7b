//! Hostile bytes: for whatever is sent, an answer comes that blames the client, and it costs little.
//!
//! Each target takes something good, spoils it and sends it. A run is made of its seed: it is printed when
//! something is found, and `FUZZ_SEED` starts the same run again.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | go on for this long, with one seed after the other; `make fuzz` does |
//! | `FUZZ_ITERATIONS` | requests of each target with one seed, 400 by default |
//! | `FUZZ_SEED` | the first seed, 1 by default |

#[path = "../support/mod.rs"]
mod support;

mod corpus;
mod cost;
mod spoil;
mod targets;

use std::time::{Duration, Instant};

use spoil::Random;
use support::World;
use targets::{LONG, TARGETS};

/// What one request may cost in processor time. The slowest take some hundredths of a second in a debug build;
/// what has no end takes forever.
const LONGEST: Duration = Duration::from_secs(20);
/// What the whole process may hold at most, after any number of requests of at most 200 KB.
const MOST_MEMORY_KIB: u64 = 1 << 20;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Says what was going on when an assertion, or the server, fails.
struct Trace<'t> {
    target: &'t str,
    seed: u64,
    iteration: u64,
}

impl Drop for Trace<'_> {
    #[allow(clippy::print_stderr, reason = "it is what one needs to see the failure again")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, seed, iteration } = self;
            eprintln!("target {target}, FUZZ_SEED={seed}, iteration {iteration}");
        }
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "how much was tried is what one wants to know")]
fn hostile_bytes_are_refused_at_little_cost() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let iterations = variable("FUZZ_ITERATIONS").unwrap_or(400);
    let until = variable("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = variable("FUZZ_SEED").unwrap_or(1);
    let (mut sent, mut slowest) = (0_u64, Duration::ZERO);
    for seed in first.. {
        let long: &[_] = if until.is_some() { LONG } else { &[] };
        for (name, target) in TARGETS.iter().chain(long) {
            let mut random = Random::new(seed, name);
            runtime.block_on(async {
                // Not one world for all: what one request leaves behind must not make the next ones slow.
                let world = World::new().await;
                corpus::prepare(&world.client).await;
                for iteration in 0..iterations {
                    let trace = Trace { target: name, seed, iteration };
                    let request = target(&mut random);
                    let before = cost::processor();
                    let answers = request.send(&world.client).await;
                    let took = cost::processor().saturating_sub(before);
                    for answer in answers {
                        let said = String::from_utf8_lossy(&answer.body);
                        // Of what is not there yet Kubernetes says that it took too long to come.
                        let awaited = answer.code == 504 && said.contains("ResourceVersionTooLarge");
                        assert!(answer.code < 500 || awaited, "{} {said}\n{request:?}", answer.code);
                    }
                    assert!(took < LONGEST, "{took:?} of processor time\n{request:?}");
                    slowest = slowest.max(took);
                    sent += 1;
                    drop(trace);
                }
                world.server.close();
            });
            let held = cost::peak_memory_kib();
            assert!(held < MOST_MEMORY_KIB, "{held} KiB were held after target {name}, FUZZ_SEED={seed}");
        }
        if until.is_none_or(|until| Instant::now() >= until) {
            break;
        }
    }
    let held = cost::peak_memory_kib() >> 10;
    println!("{sent} requests; the slowest took {slowest:?} of processor time; at most {held} MiB were held");
}
