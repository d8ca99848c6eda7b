//! The queue when threads meet in it, in every order that a scheduler can think of.
//!
//! The same source is compiled a second time, on locks and wake-ups whose order the explorer
//! holds in its hands.

#[path = "mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "a second copy of the queue")]
mod queue;

/// What the queue is built on, under the explorer's control.
mod sync {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tokio::time::Instant;

    pub(super) use shuttle::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;

    /// These tests delay nothing.
    pub(super) async fn sleep_until(_: Instant) {
        std::future::pending::<()>().await;
    }

    /// Behaves as tokio's: one permit is stored, a wake-up belongs to the one who was woken, and
    /// goes on to the next when that one is dropped.
    #[derive(Default)]
    pub(super) struct Notify(Mutex<State>);

    #[derive(Default)]
    struct State {
        permit: bool,
        next: u64,
        waiting: VecDeque<(u64, Waker)>,
        woken: Vec<u64>,
    }

    pub(super) struct Notified<'a> {
        notify: &'a Notify,
        ticket: Option<u64>,
    }

    impl Notify {
        pub(super) fn new() -> Self {
            Self::default()
        }

        pub(super) fn notify_one(&self) {
            let woken = {
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some((ticket, waker)) => {
                        state.woken.push(ticket);
                        Some(waker)
                    }
                    None => {
                        state.permit = true;
                        None
                    }
                }
            };
            if let Some(waker) = woken {
                waker.wake();
            }
        }

        pub(super) fn notified(&self) -> Notified<'_> {
            Notified { notify: self, ticket: None }
        }

        fn lock(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut state = self.notify.lock();
            let ticket = match self.ticket {
                Some(ticket) => ticket,
                None if std::mem::take(&mut state.permit) => return Poll::Ready(()),
                None => {
                    state.next += 1;
                    state.next
                }
            };
            if let Some(at) = state.woken.iter().position(|woken| *woken == ticket) {
                state.woken.swap_remove(at);
                drop(state);
                self.ticket = None;
                return Poll::Ready(());
            }
            match state.waiting.iter_mut().find(|(waiting, _)| *waiting == ticket) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => state.waiting.push_back((ticket, cx.waker().clone())),
            }
            drop(state);
            self.ticket = Some(ticket);
            Poll::Pending
        }
    }

    impl Drop for Notified<'_> {
        fn drop(&mut self) {
            let Some(ticket) = self.ticket else { return };
            let mut state = self.notify.lock();
            state.waiting.retain(|(waiting, _)| *waiting != ticket);
            if let Some(at) = state.woken.iter().position(|woken| *woken == ticket) {
                state.woken.swap_remove(at);
                drop(state);
                self.notify.notify_one();
            }
        }
    }
}

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::{future, thread};

use self::queue::{BackOff, Next, Priority, Queue};
use crate::jitter::Jitter;
use crate::key::Key;
use crate::metrics::{Metrics, QueueMetrics};
use crate::reason::Reason;

const KEYS: usize = 3;
const ROUNDS: usize = 3;

/// What producers asked for and workers have seen of each key.
#[derive(Default)]
struct World {
    asked: [AtomicUsize; KEYS],
    seen: [AtomicUsize; KEYS],
    running: [AtomicBool; KEYS],
}

fn key(number: usize) -> Key {
    Key::new(["shop", "bank"][number % 2], &number.to_string())
}

fn queue(metrics: &QueueMetrics) -> Arc<Queue> {
    Arc::new(Queue::new(BackOff::default(), Jitter::seeded(1), metrics.clone()))
}

/// Takes keys until the queue is closed.
async fn work(queue: Arc<Queue>, world: Arc<World>) {
    let mut handed_out = 0;
    while let Some(item) = queue.pop().await {
        let number: usize = item.key.name().parse().expect("a number");
        assert!(!world.running[number].swap(true, Ordering::SeqCst), "handed out twice at once");
        let asked = world.asked[number].load(Ordering::SeqCst);
        thread::yield_now();
        world.seen[number].fetch_max(asked, Ordering::SeqCst);
        world.running[number].store(false, Ordering::SeqCst);
        handed_out += 1;
        let next = match handed_out % 5 {
            0 => Next::Again("once more"),
            _ => Next::Forget,
        };
        queue.done(item, next);
    }
}

#[test]
fn every_wish_is_seen_by_a_run_that_begins_after_it() {
    let metrics = Metrics::new().queue("test");
    shuttle::check_random(
        move || {
            let (queue, world) = (queue(&metrics), Arc::new(World::default()));
            let workers: Vec<_> =
                (0..2).map(|_| future::spawn(work(Arc::clone(&queue), Arc::clone(&world)))).collect();
            let producers: Vec<_> = (0..2)
                .map(|producer| {
                    let (queue, world) = (Arc::clone(&queue), Arc::clone(&world));
                    thread::spawn(move || {
                        for round in 0..ROUNDS {
                            let number = (producer + round) % KEYS;
                            world.asked[number].fetch_add(1, Ordering::SeqCst);
                            let priority = Priority::ALL[round % 3];
                            queue.add(key(number), priority, Reason::Changed);
                        }
                    })
                })
                .collect();
            for producer in producers {
                producer.join().expect("a producer");
            }
            let settled = |number: usize| {
                world.seen[number].load(Ordering::SeqCst) == world.asked[number].load(Ordering::SeqCst)
            };
            // A wake-up that got lost would leave this waiting for ever, which the explorer sees.
            while !(0..KEYS).all(settled) {
                thread::yield_now();
            }
            queue.close();
            for worker in workers {
                future::block_on(worker).expect("a worker");
            }
        },
        500,
    );
}

#[test]
fn closing_ends_every_worker_whatever_happens_meanwhile() {
    let metrics = Metrics::new().queue("test");
    shuttle::check_pct(
        move || {
            let (queue, world) = (queue(&metrics), Arc::new(World::default()));
            let workers: Vec<_> =
                (0..3).map(|_| future::spawn(work(Arc::clone(&queue), Arc::clone(&world)))).collect();
            let producer = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    for number in 0..KEYS {
                        queue.add(key(number), Priority::Interactive, Reason::Changed);
                    }
                })
            };
            queue.close();
            producer.join().expect("the producer");
            for worker in workers {
                future::block_on(worker).expect("a worker");
            }
        },
        500,
        3,
    );
}
