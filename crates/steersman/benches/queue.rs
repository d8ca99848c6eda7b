//! How many keys per second go through the queue: add, pop, done, with priorities, reasons and
//! figures on, beside the queues of client-go and controller-runtime where Go is there.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use steersman::queue::{BackOff, Next, Priority, Queue};
use steersman::{Key, Reason};

const KEYS: usize = 200_000;
const ROUNDS: usize = 3;
const WORKERS: [usize; 3] = [1, 4, 16];

fn main() {
    let keys: Arc<Vec<Key>> = Arc::new(
        (0..KEYS)
            .map(|number| Key::new(&format!("ns-{}", number % 50), &format!("object-{number}")))
            .collect(),
    );
    let ours = WORKERS.map(|workers| (0..ROUNDS).map(|_| round(&keys, workers)).fold(0.0, f64::max));
    println!("queue, {KEYS} keys: add, pop, done; keys per second with 1, 4 and 16 workers");
    println!("  {:<34}{:>12.0}{:>12.0}{:>12.0}", "ours", ours[0], ours[1], ours[2]);
    for (name, theirs) in peers() {
        println!("  {name:<34}{:>12.0}{:>12.0}{:>12.0}", theirs[0], theirs[1], theirs[2]);
        let ratio = |at: usize| ours[at] / theirs[at].max(1.0);
        println!("  {:<34}{:>10.1} x{:>10.1} x{:>10.1} x", "  ours to theirs", ratio(0), ratio(1), ratio(2));
    }
    println!("  {:<34}{:>12.0}", "ours, re-adding waiting keys", merge(&keys));
}

/// The queues that others have, by name, with the same number for each number of workers.
fn peers() -> Vec<(String, [f64; 3])> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/queue_peers");
    let output = match Command::new("go").args(["run", "."]).current_dir(folder).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            println!("  the peers do not run: {}", String::from_utf8_lossy(&output.stderr).trim());
            return Vec::new();
        }
        Err(error) => {
            println!("  without Go there are no peers to compare with: {error}");
            return Vec::new();
        }
    };
    let mut found: Vec<(String, [f64; 3])> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut parts = line.split('\t');
        let (Some(name), Some(workers), Some(figure)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let at = WORKERS.iter().position(|known| workers.parse() == Ok(*known));
        let (Some(at), Ok(figure)) = (at, figure.parse()) else { continue };
        match found.iter_mut().find(|(known, _)| known == name) {
            Some((_, figures)) => figures[at] = figure,
            None => {
                found.push((name.to_owned(), [0.0; 3]));
                if let Some((_, figures)) = found.last_mut() {
                    figures[at] = figure;
                }
            }
        }
    }
    found
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
