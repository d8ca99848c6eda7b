//! Garbage collection by owner: what nobody owns any more goes.
//!
//! Every kind the server has is followed by its metadata, custom ones as they come and go. The
//! [`graph`] tells which objects a change concerns; each of those is then looked up afresh, by
//! uid, before anything is done to it ([`job`]), and what is done is [`verdict`]'s decision.
//!
//! ```text
//! metadata of every kind ─▶ graph ─▶ uids to look at ─▶ live lookup ─▶ verdict ─▶ delete, patch
//! ```

mod graph;
mod job;
mod verdict;

use crate::kinds::{Kind, Kinds};
use futures::StreamExt;
use futures::stream::{AbortHandle, BoxStream, SelectAll, abortable};
use graph::{FOREGROUND, Graph, Node, ORPHAN, Task, Uid};
use job::{Job, JobError};
use kube::Client;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use steersman::{Cache, CancellationToken, Error, Header, MetadataEvent};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Objects that are dealt with at the same time.
const CONCURRENCY: usize = 16;
/// How long the first look at everything may take before work begins anyway.
const SYNC_LIMIT: Duration = Duration::from_secs(30);
/// How long an owner that has not been seen may take to show up: kinds are followed apart, and a
/// dependent is often seen a moment before its owner.
const PATIENCE: Duration = Duration::from_millis(100);
/// First and longest delay after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));

/// Runs the garbage collector until it is stopped.
pub(crate) async fn run(client: Client, cache: Cache, stop: CancellationToken) -> Result<(), Error> {
    let mut collector = Collector::new(client, cache);
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = collector.run() => Ok(()),
    }
}

struct Collector {
    client: Client,
    cache: Cache,
    graph: Graph,
    kinds: Arc<Kinds>,
    streams: SelectAll<BoxStream<'static, (Arc<Kind>, MetadataEvent)>>,
    followed: HashMap<Arc<Kind>, AbortHandle>,
    unsynced: HashSet<Arc<Kind>>,
    work: Work,
    jobs: JoinSet<(Uid, Result<(), JobError>)>,
    discovery: JoinSet<Result<Kinds, kube::Error>>,
    /// When to ask the server for its kinds again.
    discover_at: Option<Instant>,
    discovery_failures: u32,
}

impl Collector {
    fn new(client: Client, cache: Cache) -> Self {
        Self {
            client,
            cache,
            graph: Graph::default(),
            kinds: Arc::default(),
            streams: SelectAll::new(),
            followed: HashMap::new(),
            unsynced: HashSet::new(),
            work: Work::default(),
            jobs: JoinSet::new(),
            discovery: JoinSet::new(),
            discover_at: Some(Instant::now()),
            discovery_failures: 0,
        }
    }

    async fn run(&mut self) {
        let began = Instant::now();
        loop {
            let settled = !self.followed.is_empty() && self.unsynced.is_empty();
            if settled || began.elapsed() > SYNC_LIMIT {
                self.start_jobs();
            }
            let limit = Some(began + SYNC_LIMIT).filter(|limit| !settled && *limit > Instant::now());
            let discover_at = self.discover_at.filter(|_| self.discovery.is_empty());
            let alarm = [self.work.next_due(), discover_at, limit].into_iter().flatten().min();
            tokio::select! {
                Some((kind, event)) = self.streams.next(), if !self.streams.is_empty() => self.take_in(&kind, event),
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    if let Ok((uid, result)) = done {
                        self.finish(&uid, result);
                    }
                }
                Some(found) = self.discovery.join_next(), if !self.discovery.is_empty() => match found {
                    Ok(Ok(kinds)) => self.follow(kinds),
                    Ok(Err(error)) => self.discovery_failed(&error.to_string()),
                    Err(error) => self.discovery_failed(&error.to_string()),
                },
                () = sleep_until(alarm) => {}
            }
            self.work.wake(Instant::now());
            if self.discover_at.is_some_and(|at| at <= Instant::now()) && self.discovery.is_empty() {
                self.discover_at = None;
                let client = self.client.clone();
                self.discovery.spawn(async move { Kinds::discover(&client).await });
            }
        }
    }

    fn take_in(&mut self, kind: &Arc<Kind>, event: MetadataEvent) {
        if kind.defines_kinds() && self.unsynced.is_empty() {
            self.discover_soon(PATIENCE);
        }
        let look = match event {
            MetadataEvent::Synced => {
                self.unsynced.remove(kind);
                return;
            }
            MetadataEvent::Applied(header) => self.graph.observe(&header.uid().into(), node(kind, &header)),
            MetadataEvent::Deleted(header) => self.graph.remove(&header.uid().into()),
        };
        for uid in look {
            self.look_at(uid);
        }
    }

    /// Looks at an object now, or a little later when it may only be a matter of patience.
    fn look_at(&mut self, uid: Uid) {
        let hasty = match self.graph.task(&uid) {
            None => return,
            Some(Task::Examine) => self.graph.node(&uid).is_some_and(|node| {
                node.owners
                    .iter()
                    .any(|owner| self.graph.is_gone(&owner.uid) || self.graph.is_foreground(&owner.uid))
            }),
            // A dependent may have been created just before; it is to be seen first.
            Some(Task::Orphan | Task::Foreground) => false,
        };
        if hasty {
            self.work.push(uid);
        } else {
            self.work.push_at(uid, Instant::now() + PATIENCE);
        }
    }

    fn start_jobs(&mut self) {
        while self.jobs.len() < CONCURRENCY {
            let Some(uid) = self.work.pop() else { return };
            let Some(job) = self.job(&uid) else {
                self.work.done(&uid);
                continue;
            };
            let (client, kinds) = (self.client.clone(), self.kinds.clone());
            self.jobs.spawn(async move {
                let result = job::run(&client, &kinds, job).await;
                (uid, result)
            });
        }
    }

    fn job(&mut self, uid: &Uid) -> Option<Job> {
        let task = self.graph.task(uid)?;
        let node = self.graph.node(uid)?.clone();
        let dependents: Vec<Uid> = self.graph.dependents_of(uid).cloned().collect();
        match task {
            Task::Examine => {
                let gone = node.owners.iter().filter(|owner| self.graph.is_gone(&owner.uid));
                Some(Job::Examine {
                    gone: gone.map(|owner| owner.uid.clone()).collect(),
                    has_dependents: !dependents.is_empty(),
                    in_cycle: dependents.iter().any(|dependent| self.graph.is_foreground(dependent)),
                    uid: uid.clone(),
                    node,
                })
            }
            Task::Orphan => {
                let dependents =
                    dependents.iter().filter_map(|uid| Some((uid.clone(), self.graph.node(uid)?.clone())));
                Some(Job::Orphan { dependents: dependents.collect(), uid: uid.clone(), node })
            }
            Task::Foreground => {
                let blocked = !self.graph.blocking(uid).is_empty();
                for dependent in dependents {
                    if self.graph.task(&dependent) == Some(Task::Examine) {
                        self.work.push(dependent);
                    }
                }
                (!blocked).then(|| Job::Release { uid: uid.clone(), node, finalizer: FOREGROUND })
            }
        }
    }

    fn finish(&mut self, uid: &Uid, result: Result<(), JobError>) {
        match result {
            Ok(()) => self.work.done(uid),
            Err(error) => {
                let name = self.graph.node(uid).map(Node::to_string).unwrap_or_default();
                tracing::debug!(object = name, %error, "collecting garbage failed; it is tried again");
                if matches!(error, JobError::UnknownKind { .. }) {
                    self.discover_soon(Duration::from_secs(1));
                }
                self.work.retry(uid);
            }
        }
    }

    fn discover_soon(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.discover_at = Some(self.discover_at.map_or(at, |before| before.min(at)));
    }

    fn discovery_failed(&mut self, error: &str) {
        tracing::warn!(error, "the server's kinds cannot be had; asking again");
        self.discovery_failures = (self.discovery_failures + 1).min(8);
        self.discover_soon(Duration::from_millis(250) * 2_u32.pow(self.discovery_failures));
    }

    /// Follows the kinds that are new and lets go of those that are no more.
    fn follow(&mut self, kinds: Kinds) {
        self.discovery_failures = 0;
        let wanted: HashSet<Arc<Kind>> = kinds.iter().filter(|kind| !kind.is_event()).cloned().collect();
        let lost: Vec<Arc<Kind>> =
            self.followed.keys().filter(|kind| !wanted.contains(*kind)).cloned().collect();
        for kind in lost {
            if let Some(handle) = self.followed.remove(&kind) {
                handle.abort();
            }
            self.unsynced.remove(&kind);
            self.graph.forget_kind(&kind);
        }
        for kind in wanted {
            if self.followed.contains_key(&kind) {
                continue;
            }
            let events = self.cache.watch_metadata(&kind.resource());
            let tag = kind.clone();
            let (events, handle) = abortable(events.map(move |event| (tag.clone(), event)));
            self.streams.push(events.boxed());
            self.followed.insert(kind.clone(), handle);
            self.unsynced.insert(kind);
        }
        self.kinds = Arc::new(kinds);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn node(kind: &Arc<Kind>, header: &Header) -> Node {
    let finalizers = header.finalizers();
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    Node {
        kind: kind.clone(),
        namespace: header.key().namespace().map(Arc::from),
        name: header.key().name().into(),
        owners: header.owners(),
        deleting: header.deleting,
        foreground: has(FOREGROUND),
        orphan: has(ORPHAN),
    }
}

/// Uids that wait to be looked at, each at most once, none while it is being looked at.
#[derive(Debug, Default)]
struct Work {
    ready: VecDeque<Uid>,
    states: HashMap<Uid, State>,
    later: BTreeMap<(Instant, u64), Uid>,
    counter: u64,
}

#[derive(Debug, Default)]
struct State {
    queued: bool,
    running: bool,
    failures: u32,
}

impl Work {
    fn push(&mut self, uid: Uid) {
        let state = self.states.entry(uid.clone()).or_default();
        if !std::mem::replace(&mut state.queued, true) && !state.running {
            self.ready.push_back(uid);
        }
    }

    fn push_at(&mut self, uid: Uid, at: Instant) {
        self.counter += 1;
        self.later.insert((at, self.counter), uid);
    }

    fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Queues what has become due.
    fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let uid = entry.remove();
            self.push(uid);
        }
    }

    fn pop(&mut self) -> Option<Uid> {
        let uid = self.ready.pop_front()?;
        let state = self.states.entry(uid.clone()).or_default();
        state.queued = false;
        state.running = true;
        Some(uid)
    }

    fn done(&mut self, uid: &Uid) {
        if let Some(state) = self.states.get_mut(uid) {
            state.running = false;
            state.failures = 0;
            if state.queued {
                self.ready.push_back(uid.clone());
            } else {
                self.states.remove(uid);
            }
        }
    }

    fn retry(&mut self, uid: &Uid) {
        let Some(state) = self.states.get_mut(uid) else { return };
        state.running = false;
        state.failures = (state.failures + 1).min(16);
        let (first, longest) = RETRY;
        let delay = (first * 2_u32.pow(state.failures - 1)).min(longest);
        if state.queued {
            self.ready.push_back(uid.clone());
        } else {
            self.push_at(uid.clone(), Instant::now() + delay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_queued_once_and_again_when_it_changed_meanwhile() {
        let mut work = Work::default();
        let uid: Uid = "a".into();
        work.push(uid.clone());
        work.push(uid.clone());
        assert_eq!(work.pop().as_ref(), Some(&uid));
        assert_eq!(work.pop(), None);
        work.push(uid.clone());
        assert_eq!(work.pop(), None, "not while it is being looked at");
        work.done(&uid);
        assert_eq!(work.pop().as_ref(), Some(&uid));
        work.done(&uid);
        assert!(work.states.is_empty(), "nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_later_and_later() {
        let mut work = Work::default();
        let uid: Uid = "a".into();
        work.push(uid.clone());
        let mut delays = Vec::new();
        for _ in 0..3 {
            assert!(work.pop().is_some());
            work.retry(&uid);
            let due = work.next_due().expect("a retry");
            delays.push(due - Instant::now());
            tokio::time::advance(due - Instant::now()).await;
            work.wake(Instant::now());
        }
        assert_eq!(delays, [500, 1_000, 2_000].map(Duration::from_millis));
    }
}
