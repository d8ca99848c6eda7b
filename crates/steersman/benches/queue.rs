//! How many keys per second go through the queue: add, pop, done, with priorities, reasons and
//! figures on. Prints lines that `make bench` sets beside those of other queues.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use steersman::queue::{BackOff, Next, Priority, Queue};
use steersman::{Key, Reason};

const KEYS: usize = 200_000;
const ROUNDS: usize = 3;

fn main() {
    let keys: Arc<Vec<Key>> = Arc::new(
        (0..KEYS)
            .map(|number| Key::new(&format!("ns-{}", number % 50), &format!("object-{number}")))
            .collect(),
    );
    for workers in [1, 4, 16] {
        let best = (0..ROUNDS).map(|_| round(&keys, workers)).fold(0.0, f64::max);
        println!("queue add-pop-done, {workers:2} workers: {best:>10.0} items/s");
    }
    println!("queue re-adding waiting keys:    {:>10.0} items/s", merge(&keys));
}

/// All keys through the queue once, in keys per second.
fn round(keys: &Arc<Vec<Key>>, workers: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let Ok(runtime) = runtime else { return 0.0 };
    runtime.block_on(async {
        let queue = Arc::new(Queue::standalone(BackOff::default()));
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..workers {
            let queue = Arc::clone(&queue);
            tasks.spawn(async move {
                let mut done = 0usize;
                while let Some(item) = queue.pop().await {
                    queue.done(item, Next::Forget);
                    done += 1;
                    // Let the others have a turn, as a reconcile that waits for something does.
                    if done.is_multiple_of(64) {
                        tokio::task::yield_now().await;
                    }
                }
                done
            });
        }
        for key in keys.iter() {
            queue.add(key.clone(), Priority::Interactive, Reason::Changed);
        }
        while queue.depth().iter().sum::<usize>() > 0 {
            tokio::task::yield_now().await;
        }
        queue.close();
        let mut total = 0;
        while let Some(done) = tasks.join_next().await {
            total += done.unwrap_or_default();
        }
        assert_eq!(total, keys.len(), "every key came out once");
        keys.len() as f64 / began.elapsed().as_secs_f64()
    })
}

fn merge(keys: &[Key]) -> f64 {
    let queue = Queue::standalone(BackOff::default());
    for key in keys {
        queue.add(key.clone(), Priority::Resync, Reason::Resync);
    }
    let began = Instant::now();
    for key in keys {
        queue.add(key.clone(), Priority::Resync, Reason::Changed);
    }
    keys.len() as f64 / began.elapsed().as_secs_f64()
}
