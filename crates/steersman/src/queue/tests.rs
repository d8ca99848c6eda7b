//! The queue by itself, under virtual time.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use crate::jitter::Jitter;
use crate::key::Key;
use crate::metrics::Metrics;
use crate::queue::*;
use crate::reason::Reason;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> Queue {
    let metrics = Metrics::new().queue("test");
    Queue::new(BackOff::default(), Jitter::seeded(1), metrics)
}

fn add(queue: &Queue, key: &Key) {
    queue.add(key.clone(), Priority::Interactive, Reason::Changed);
}

/// The next key if one is ready now.
fn pop(queue: &Queue) -> Option<Item> {
    queue.pop().now_or_never().flatten()
}

/// Names of all that is ready, each done as soon as it comes out.
fn drain(queue: &Queue) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(item) = pop(queue) {
        names.push(item.key.to_string());
        queue.done(item, Next::Forget);
    }
    names
}

fn key(number: usize) -> Key {
    Key::new("shop", &format!("{number:04}"))
}

#[tokio::test(start_paused = true)]
async fn keys_come_out_in_the_order_in_which_they_went_in() {
    let queue = queue();
    for number in 0..2000 {
        add(&queue, &key(number));
    }
    let expected: Vec<String> = (0..2000).map(|number| key(number).to_string()).collect();
    assert_eq!(drain(&queue), expected);
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_once_however_often_it_is_added() {
    let queue = queue();
    for _ in 0..3 {
        add(&queue, &key(1));
    }
    queue.add(key(1), Priority::Resync, Reason::Resync);
    let item = pop(&queue).expect("the key");
    assert_eq!(item.reasons.to_string(), "changed, resync");
    assert!(pop(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_handed_out_twice_at_once() {
    let queue = queue();
    add(&queue, &key(1));
    let first = pop(&queue).expect("the key");
    add(&queue, &key(1));
    assert!(pop(&queue).is_none());
    queue.done(first, Next::Forget);
    let second = pop(&queue).expect("it changed while it ran");
    queue.done(second, Next::Forget);
    assert!(pop(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_changed_goes_before_what_is_only_looked_at_again() {
    let queue = queue();
    queue.add(key(1), Priority::Resync, Reason::Started);
    queue.add(key(2), Priority::Retry, Reason::Retry);
    queue.add(key(3), Priority::Interactive, Reason::Changed);
    assert_eq!(drain(&queue), ["shop/0003", "shop/0002", "shop/0001"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_moves_up_when_it_becomes_urgent() {
    let queue = queue();
    queue.add(key(1), Priority::Resync, Reason::Started);
    queue.add(key(2), Priority::Resync, Reason::Started);
    queue.add(key(2), Priority::Interactive, Reason::Changed);
    assert_eq!(queue.depth(), [1, 0, 1]);
    assert_eq!(drain(&queue), ["shop/0002", "shop/0001"]);
    assert_eq!(queue.depth(), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lower_level_is_served_however_busy_the_higher_ones_are() {
    let queue = queue();
    queue.add(key(9000), Priority::Resync, Reason::Resync);
    let mut turns = 0;
    loop {
        add(&queue, &key(turns));
        let item = pop(&queue).expect("something is always ready");
        let name = item.key.name().to_owned();
        queue.done(item, Next::Forget);
        if name == "9000" {
            break;
        }
        turns += 1;
        assert!(turns <= 10, "starved");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_keys_does_not_hold_up_another() {
    let queue = queue();
    for number in 0..1000 {
        queue.add(Key::new("noisy", &number.to_string()), Priority::Interactive, Reason::Changed);
    }
    queue.add(Key::new("quiet", "one"), Priority::Interactive, Reason::Changed);
    let order = drain(&queue);
    assert_eq!(order[1], "quiet/one");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_success_forgets_them() {
    let queue = queue();
    add(&queue, &key(1));
    let mut item = pop(&queue).expect("the key");
    for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0] {
        let began = Instant::now();
        queue.done(item, Next::Failed(Retry::BackOff));
        item = queue.pop().await.expect("a retry");
        let waited = began.elapsed().as_secs_f64();
        assert!((waited / expected - 1.0).abs() < 0.11, "{waited} instead of {expected}");
    }
    assert_eq!(item.failures, 11);
    queue.done(item, Next::Forget);
    add(&queue, &key(1));
    let item = pop(&queue).expect("the key");
    assert_eq!(item.failures, 0);
    queue.done(item, Next::Failed(Retry::BackOff));
    let began = Instant::now();
    queue.pop().await.expect("a retry");
    assert!(began.elapsed() < 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_event_during_the_back_off_runs_at_once_and_does_not_lengthen_it() {
    let queue = queue();
    add(&queue, &key(1));
    let mut item = pop(&queue).expect("the key");
    for _ in 0..3 {
        queue.done(item, Next::Failed(Retry::BackOff));
        item = queue.pop().await.expect("a retry");
    }
    queue.done(item, Next::Failed(Retry::BackOff));
    let failed = Instant::now();
    for _ in 0..20 {
        add(&queue, &key(1));
        let item = pop(&queue).expect("an event brings it at once");
        queue.done(item, Next::Failed(Retry::BackOff));
    }
    let item = queue.pop().await.expect("the retry");
    assert_eq!(item.failures, 4);
    let waited = failed.elapsed();
    assert!(waited > 7 * SECOND && waited < 9 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_that_its_own_writes_make_dirty_does_not_spin() {
    let queue = queue();
    add(&queue, &key(1));
    let began = Instant::now();
    for _ in 0..10 {
        let item = queue.pop().await.expect("the key");
        add(&queue, &key(1));
        queue.done(item, Next::Failed(Retry::BackOff));
    }
    assert!(began.elapsed() >= 5 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_new_wish_gets_new_attempts() {
    let queue = queue();
    add(&queue, &key(1));
    let mut item = pop(&queue).expect("the key");
    for _ in 0..6 {
        queue.done(item, Next::Failed(Retry::BackOff));
        item = queue.pop().await.expect("a retry");
    }
    queue.done(item, Next::Failed(Retry::BackOff));
    queue.reset_failures(&key(1));
    add(&queue, &key(1));
    let item = pop(&queue).expect("at once");
    queue.done(item, Next::Failed(Retry::BackOff));
    let began = Instant::now();
    queue.pop().await.expect("a retry");
    assert!(began.elapsed() < 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_waits_for_a_change() {
    let queue = queue();
    add(&queue, &key(1));
    let item = pop(&queue).expect("the key");
    queue.done(item, Next::Failed(Retry::Never));
    let again = tokio::time::timeout(3600 * SECOND, queue.pop()).await;
    assert!(again.is_err(), "it came back by itself");
    add(&queue, &key(1));
    assert!(pop(&queue).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_requested_delay_is_kept_and_a_change_comes_before_it() {
    let queue = queue();
    add(&queue, &key(1));
    let began = Instant::now();
    let item = pop(&queue).expect("the key");
    queue.done(item, Next::After(30 * SECOND, "check again"));
    let item = queue.pop().await.expect("after the delay");
    assert_eq!(began.elapsed(), 30 * SECOND);
    assert_eq!(item.reasons.to_string(), "requested: check again");
    queue.done(item, Next::After(30 * SECOND, "check again"));
    add(&queue, &key(1));
    let item = pop(&queue).expect("the change");
    queue.done(item, Next::Forget);
    let again = tokio::time::timeout(3600 * SECOND, queue.pop()).await;
    assert!(again.is_err(), "the old delay is void: the last run wanted nothing");
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_delays_counts() {
    let queue = queue();
    let began = Instant::now();
    queue.add_after(key(1), 60 * SECOND, Priority::Retry, Reason::Manual);
    queue.add_after(key(1), 10 * SECOND, Priority::Retry, Reason::Manual);
    queue.add_after(key(1), 90 * SECOND, Priority::Retry, Reason::Manual);
    let item = queue.pop().await.expect("the key");
    assert_eq!(began.elapsed(), 10 * SECOND);
    queue.done(item, Next::Forget);
    assert!(tokio::time::timeout(3600 * SECOND, queue.pop()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn closing_releases_all_workers() {
    let queue = std::sync::Arc::new(queue());
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let queue = std::sync::Arc::clone(&queue);
        workers.spawn(async move { while queue.pop().await.is_some() {} });
    }
    tokio::task::yield_now().await;
    queue.close();
    let all = async { while workers.join_next().await.is_some() {} };
    tokio::time::timeout(SECOND, all).await.expect("all workers end");
}

#[tokio::test(start_paused = true)]
async fn a_burst_wakes_all_idle_workers() {
    let queue = std::sync::Arc::new(queue());
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(9));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (queue, barrier) = (std::sync::Arc::clone(&queue), std::sync::Arc::clone(&barrier));
        workers.spawn(async move {
            let item = queue.pop().await.expect("a key");
            barrier.wait().await;
            queue.done(item, Next::Forget);
        });
    }
    tokio::task::yield_now().await;
    for number in 0..8 {
        add(&queue, &key(number));
    }
    tokio::time::timeout(SECOND, barrier.wait()).await.expect("all eight run at the same time");
}

mod model {
    //! The queue against a small model of what every key is owed.

    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, u8),
        AddAfter(u8, u16),
        Pop,
        /// Finishes the n-th running key.
        Done(u8, Ending),
        Pass(u16),
    }

    #[derive(Clone, Copy, Debug)]
    enum Ending {
        Forget,
        Again,
        After(u16),
        Fail,
        Terminal,
    }

    fn step() -> impl Strategy<Value = Step> {
        let ending = prop_oneof![
            3 => Just(Ending::Forget),
            1 => Just(Ending::Again),
            2 => (1..60u16).prop_map(Ending::After),
            2 => Just(Ending::Fail),
            1 => Just(Ending::Terminal),
        ];
        prop_oneof![
            4 => (0..6u8, 0..3u8).prop_map(|(key, level)| Step::Add(key, level)),
            1 => (0..6u8, 1..60u16).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
            4 => Just(Step::Pop),
            4 => (any::<u8>(), ending).prop_map(|(at, ending)| Step::Done(at, ending)),
            2 => (1..40u16).prop_map(Step::Pass),
        ]
    }

    /// What the queue owes for one key.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Owed {
        Now,
        Running,
        RunningAndAgain,
        /// Between these two times: back-off is jittered.
        Later(Instant, Instant),
    }

    fn six(number: u8) -> Key {
        Key::new(["a", "b", "c"][number as usize % 3], &number.to_string())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn every_key_gets_what_it_is_owed(steps in proptest::collection::vec(step(), 1..120)) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime");
            runtime.block_on(check(steps))?;
        }
    }

    async fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
        let queue = queue();
        let mut owed: BTreeMap<String, Owed> = BTreeMap::new();
        let mut failures: HashMap<String, (u32, Option<Instant>)> = HashMap::new();
        let mut running: Vec<Item> = Vec::new();
        for step in steps {
            let now = Instant::now();
            // Delays that are surely over; those that may be over are settled by what pops.
            for state in owed.values_mut() {
                if matches!(state, Owed::Later(_, latest) if *latest <= now) {
                    *state = Owed::Now;
                }
            }
            match step {
                Step::Add(number, level) => {
                    let key = six(number);
                    let state = owed.entry(key.to_string()).or_insert(Owed::Now);
                    *state = match *state {
                        Owed::Running | Owed::RunningAndAgain => Owed::RunningAndAgain,
                        _ => Owed::Now,
                    };
                    queue.add(key, Priority::ALL[level as usize], Reason::Changed);
                }
                Step::AddAfter(number, delay) => {
                    let key = six(number);
                    let due = now + Duration::from_secs(delay.into());
                    let state = owed.entry(key.to_string()).or_insert(Owed::Later(due, due));
                    if let Owed::Later(earliest, latest) = state {
                        *earliest = due.min(*earliest);
                        *latest = due.min(*latest);
                    }
                    queue.add_after(key, due - now, Priority::Retry, Reason::Manual);
                }
                Step::Pop => match pop(&queue) {
                    Some(item) => {
                        let state = owed.get_mut(item.key.as_str());
                        let state = state.expect("only what was added comes out");
                        match *state {
                            Owed::Now => {}
                            Owed::Later(earliest, _) => prop_assert!(earliest <= now, "too early"),
                            other => prop_assert!(false, "handed out while {other:?}"),
                        }
                        *state = Owed::Running;
                        running.push(item);
                    }
                    None => prop_assert!(
                        !owed.values().any(|state| *state == Owed::Now),
                        "nothing came out, but owed is {owed:?}"
                    ),
                },
                Step::Done(at, ending) => {
                    if running.is_empty() {
                        continue;
                    }
                    let item = running.remove(at as usize % running.len());
                    let name = item.key.to_string();
                    let dirty = owed[&name] == Owed::RunningAndAgain;
                    let failed = failures.entry(name.clone()).or_default();
                    prop_assert_eq!(item.failures, failed.0);
                    let (next, then) = match ending {
                        Ending::Forget => (Next::Forget, None),
                        Ending::Again => (Next::Again("again"), Some(Owed::Now)),
                        Ending::After(delay) => {
                            let delay = Duration::from_secs(delay.into());
                            (Next::After(delay, "later"), Some(Owed::Later(now + delay, now + delay)))
                        }
                        Ending::Terminal => (Next::Failed(Retry::Never), None),
                        Ending::Fail => {
                            let inside = failed.1.is_some_and(|until| until > now);
                            if !inside {
                                failed.0 += 1;
                            }
                            let full = Duration::from_secs(1 << (failed.0 - 1).min(8)).min(300 * SECOND);
                            let (mut earliest, mut latest) = match failed.1 {
                                // Still within the last back-off, whose end is only known roughly.
                                Some(_) if inside => (now, now + full.mul_f64(1.1)),
                                _ => (now + full.mul_f64(0.9), now + full.mul_f64(1.1)),
                            };
                            if dirty {
                                earliest = earliest.min(now + SECOND);
                                latest = latest.min(now + SECOND);
                            }
                            (Next::Failed(Retry::BackOff), Some(Owed::Later(earliest, latest)))
                        }
                    };
                    queue.done(item, next);
                    match ending {
                        Ending::Fail => {
                            failed.1 = queue.retry_at(&name_key(&name));
                        }
                        _ => *failed = (0, None),
                    }
                    let settled = match (dirty, then) {
                        (true, Some(later @ Owed::Later(..))) if matches!(ending, Ending::Fail) => {
                            Some(later)
                        }
                        (true, _) => Some(Owed::Now),
                        (false, then) => then,
                    };
                    match settled {
                        Some(state) => owed.insert(name, state),
                        None => owed.remove(&name),
                    };
                }
                Step::Pass(seconds) => {
                    tokio::time::advance(Duration::from_secs(seconds.into())).await;
                }
            }
            let ready: usize = queue.depth().iter().sum();
            let now_owed = owed.values().filter(|state| **state == Owed::Now).count();
            let maybe = owed.values().filter(|state| matches!(state, Owed::Later(..))).count();
            prop_assert!(ready <= now_owed + maybe, "depth {ready}, owed {owed:?}");
        }
        Ok(())
    }

    fn name_key(name: &str) -> Key {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        Key::new(namespace, name)
    }
}
