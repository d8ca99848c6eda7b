//! Torture: services that fall asleep and wake under load, behind a service proxy that learns of it
//! late, while resolvers are stopped and killed and the operator comes and goes.
//!
//! ```text
//! clients ─▶ proxy (sees changes 0 to 2 s late) ─▶ pods
//!                                              └─▶ resolvers, processes of their own ─▶ pods
//!                                                    │ stopped, killed and replaced
//!                                                    └─▶ operator, sometimes away
//! ```
//! Every request is answered, and none is executed twice: a request whose resolver was killed is
//! asked again by its client only when no pod has executed it.
//!
//! One minute in CI; `TORTURE_SECONDS` and `TORTURE_SERVICES` make it longer, `TORTURE_SEED` repeats it.

mod clients;
mod pods;
mod proxy;
mod resolvers;
mod service;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How late the service proxy may learn of a change.
const LAG: Duration = Duration::from_secs(2);

/// What everyone in the test knows.
struct World {
    resolvers: Mutex<Vec<resolvers::Listed>>,
    /// How often each id was executed.
    done: Mutex<HashMap<String, usize>>,
    /// Resolvers that were killed, and when the last one was: only then may a connection break.
    kills: AtomicUsize,
    killed: Mutex<Option<Instant>>,
    /// Resolvers that were killed and have no successor yet.
    replacing: AtomicUsize,
    stops: AtomicUsize,
    flips: AtomicUsize,
    answered: AtomicUsize,
    asked_again: AtomicUsize,
    over: AtomicBool,
    random: AtomicU64,
}

impl World {
    /// A number below `bound`.
    fn random(&self, bound: u64) -> u64 {
        let state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Waits between the two, in milliseconds.
    async fn pause(&self, least: u64, most: u64) {
        tokio::time::sleep(Duration::from_millis(least + self.random(most - least))).await;
    }

    /// Whether a connection may have been led to a resolver that was killed.
    fn recently_killed(&self) -> bool {
        let replaced = self.replacing.load(Ordering::SeqCst) == 0;
        !replaced || lock(&self.killed).is_some_and(|killed| killed.elapsed() < LAG * 2)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match std::env::var("TORTURE_RESOLVER") {
        Ok(operator) => runtime.block_on(resolvers::run(operator)),
        Err(_) => runtime.block_on(torture()),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[allow(clippy::print_stdout, reason = "says what it did, and the seed")]
async fn torture() {
    let seed = setting("TORTURE_SEED", u64::from(std::process::id()));
    let (seconds, count) = (setting("TORTURE_SECONDS", 45), setting("TORTURE_SERVICES", 6));
    println!("torture with seed {seed}: {count} services for {seconds} s");
    let world = Arc::new(World {
        resolvers: Mutex::default(),
        done: Mutex::default(),
        kills: AtomicUsize::new(0),
        killed: Mutex::default(),
        replacing: AtomicUsize::new(0),
        stops: AtomicUsize::new(0),
        flips: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
        asked_again: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        random: AtomicU64::new(seed),
    });
    let services: Vec<_> =
        (0..count).map(|number| service::Service::new(format!("web-{number}"), Arc::clone(&world))).collect();
    let operator = service::operator(&services, &world).await;
    let mut chaos = JoinSet::new();
    for _ in 0..2 {
        chaos.spawn(resolvers::keep(Arc::clone(&world), services.clone(), operator));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while lock(&world.resolvers).len() < 2 {
        assert!(Instant::now() < deadline, "the resolvers do not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (mut load, mut lives) = (JoinSet::new(), JoinSet::new());
    for service in &services {
        let address = proxy::start(Arc::clone(service), Arc::clone(&world)).await;
        lives.spawn(Arc::clone(service).live());
        clients::start(&mut load, address, service, &world);
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    world.over.store(true, Ordering::Relaxed);
    // Everything that was asked before the end gets its answer.
    let ending = async {
        while let Some(client) = load.join_next().await {
            client.expect("every request of this client was answered");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ending).await.expect("the last requests are answered");
    lives.shutdown().await;
    chaos.shutdown().await;
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!(
        "{} requests answered over {} flips, with {} resolvers killed and {} stopped; {} were asked again after a kill",
        count(&world.answered),
        count(&world.flips),
        count(&world.kills),
        count(&world.stops),
        count(&world.asked_again),
    );
    let done = lock(&world.done);
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times != 1).take(10).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    assert!(count(&world.answered) > 100 && count(&world.flips) > 5, "the torture was none");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
