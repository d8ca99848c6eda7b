//! The store against a model that keeps everything: after any history of writes, refusals and
//! restarts, reads, old snapshots and watches say what the model says.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::HistoryOptions;
use super::*;
use crate::object::Change;

/// The most events that a storage keeps in these tests.
const KEPT: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Update(usize, Guess),
    Delete(usize, Guess),
    Watch { storage: usize, scope: Option<usize>, after: Index },
    Drain(Index),
    ListAt { storage: usize, scope: Option<usize>, revision: Index },
    Restart,
}

/// What a writer believes the revision to be.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Right,
    Stale(u64),
}

const STORAGES: [&str; 2] = ["pods", "apps/deployments"];
const NAMESPACES: [&str; 3] = ["", "a", "b"];
const NAMES: [&str; 2] = ["x", "y"];

fn key(number: usize) -> Key {
    Key::new(STORAGES[number % 2], NAMESPACES[number / 2 % 3], NAMES[number / 6 % 2])
}

fn steps(length: usize) -> impl Strategy<Value = Vec<Step>> {
    let guess = prop_oneof![5 => Just(Guess::Right), 1 => (0_u64..20).prop_map(Guess::Stale)];
    let step = prop_oneof![
        6 => (0_usize..12).prop_map(Step::Create),
        6 => (0_usize..12, guess.clone()).prop_map(|(key, guess)| Step::Update(key, guess)),
        3 => (0_usize..12, guess).prop_map(|(key, guess)| Step::Delete(key, guess)),
        2 => (0_usize..2, prop::option::of(0_usize..3), any::<Index>())
            .prop_map(|(storage, scope, after)| Step::Watch { storage, scope, after }),
        3 => any::<Index>().prop_map(Step::Drain),
        2 => (0_usize..2, prop::option::of(0_usize..3), any::<Index>())
            .prop_map(|(storage, scope, revision)| Step::ListAt { storage, scope, revision }),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..length)
}

/// One write, as the model remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fact {
    revision: Revision,
    kind: Change,
    key: Key,
    payload: String,
    previous: Option<String>,
}

impl Fact {
    fn of(event: &Event) -> Fact {
        Fact {
            revision: event.revision(),
            kind: event.kind,
            key: event.object.key.clone(),
            payload: payload(&event.object),
            previous: event.previous.as_ref().map(|previous| payload(previous)),
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    facts: Vec<Fact>,
}

impl Model {
    fn revision(&self) -> Revision {
        self.facts.last().map_or(Revision(1), |fact| fact.revision)
    }

    fn state(&self, at: Revision) -> BTreeMap<Key, (Revision, String)> {
        let mut state = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| fact.revision <= at) {
            match fact.kind {
                Change::Deleted => state.remove(&fact.key),
                _ => state.insert(fact.key.clone(), (fact.revision, fact.payload.clone())),
            };
        }
        state
    }

    /// Whether everything that happened to a storage after a revision is still kept.
    fn keeps(&self, storage: &str, after: Revision) -> bool {
        let since = self.facts.iter().filter(|fact| *fact.key.storage == *storage && fact.revision > after);
        since.count() <= KEPT
    }

    fn record(&mut self, kind: Change, key: Key, payload: String) {
        let revision = self.revision();
        let previous = self.state(revision).remove(&key).map(|(_, payload)| payload);
        self.facts.push(Fact { revision: revision.next(), kind, key, payload, previous });
    }
}

/// A watch, and where the model says it stands.
struct Watcher {
    subscription: Subscription,
    storage: &'static str,
    scope: Option<&'static str>,
    seen: Revision,
}

fn in_scope(key: &Key, storage: &str, scope: Option<&str>) -> bool {
    *key.storage == *storage && scope.is_none_or(|namespace| *key.namespace == *namespace)
}

/// Hands out everything a watch has, and compares it with the model.
fn drain(watcher: &mut Watcher, model: &Model) -> Result<(), TestCaseError> {
    let Watcher { subscription, storage, scope, seen } = watcher;
    if !model.keeps(storage, *seen) {
        prop_assert!(matches!(subscription.try_next(), Some(Err(_))), "the watch should lag");
        return Ok(());
    }
    let expected =
        model.facts.iter().filter(|fact| fact.revision > *seen && in_scope(&fact.key, storage, *scope));
    for fact in expected {
        prop_assert!(subscription.progress() < fact.revision);
        let event = subscription.try_next().expect("an event").expect("kept");
        prop_assert_eq!(&Fact::of(&event), fact);
        let frame: serde_json::Value = serde_json::from_slice(event.object.frame()).expect("JSON");
        prop_assert_eq!(&frame["object"]["spec"], &fact.payload);
    }
    prop_assert!(subscription.try_next().is_none());
    prop_assert_eq!(subscription.progress(), model.revision());
    *seen = model.revision();
    Ok(())
}

fn check_list(
    list: &super::super::Snapshot,
    model: &Model,
    storage: &str,
    scope: Option<&str>,
    at: Revision,
) -> Result<(), TestCaseError> {
    let found: Vec<_> = list.iter().map(|o| (o.key.clone(), (o.revision, payload(o)))).collect();
    let expected: Vec<_> =
        model.state(at).into_iter().filter(|(key, _)| in_scope(key, storage, scope)).collect();
    prop_assert_eq!(list.revision, at);
    prop_assert_eq!(list.len(), expected.len());
    for cut in 0..expected.len() {
        let (key, _) = &expected[cut];
        let rest = list.after(&key.namespace, &key.name).count();
        prop_assert_eq!(rest, expected.len() - cut - 1);
    }
    prop_assert_eq!(found, expected);
    Ok(())
}

/// Whether writes may fail because the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Small,
    Ample,
}

/// The store under test, and how to open it again where it can be.
struct Subject {
    store: Store,
    disk: Disk,
    home: Option<(Home, StoreOptions)>,
}

async fn run(mut subject: Subject, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut watchers: Vec<Watcher> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        // Some large, so that a disk that fills up still takes small writes after it refused one.
        let payload = format!("payload {number} {}", "x".repeat(number % 3 * 2_000));
        match step {
            Step::Create(index) => {
                let result = create(&subject.store, &key(index), &payload).await;
                if subject.disk == Disk::Small && matches!(result, Err(WriteError::Full)) {
                    continue;
                }
                let exists = model.state(model.revision()).contains_key(&key(index));
                prop_assert_eq!(matches!(result, Err(WriteError::Exists)), exists);
                prop_assert_eq!(result.is_ok(), !exists);
                if result.is_ok() {
                    model.record(Change::Added, key(index), payload);
                }
            }
            Step::Update(index, guess) | Step::Delete(index, guess) => {
                let (kind, payload) = match step {
                    Step::Update(..) => (Change::Modified, payload),
                    _ => (Change::Deleted, "gone".to_owned()),
                };
                let current = model.state(model.revision()).get(&key(index)).map(|(revision, _)| *revision);
                let expected = match guess {
                    Guess::Right => current.unwrap_or(Revision(2)),
                    Guess::Stale(revision) => Revision(revision),
                };
                let result = match kind {
                    Change::Deleted => delete(&subject.store, &key(index), expected).await,
                    _ => update(&subject.store, &key(index), expected, &payload).await,
                };
                match (current, result) {
                    (_, Err(WriteError::Full)) if subject.disk == Disk::Small => {}
                    (None, Err(WriteError::NotFound)) => {}
                    (Some(current), Err(WriteError::Conflict { current: told })) => {
                        prop_assert_ne!(current, expected);
                        prop_assert_eq!(current, told.revision);
                    }
                    (Some(current), Ok(_)) => {
                        prop_assert_eq!(current, expected);
                        model.record(kind, key(index), payload);
                    }
                    (current, result) => prop_assert!(false, "{current:?} gave {result:?}"),
                }
            }
            Step::Watch { storage, scope, after } => {
                let (storage, scope) = (STORAGES[storage], scope.map(|scope| NAMESPACES[scope]));
                let after =
                    Revision(1 + after.index(usize::try_from(model.revision().0).unwrap_or(1)) as u64);
                let result = subject.store.watch(storage, scope, after);
                prop_assert_eq!(result.is_ok(), model.keeps(storage, after));
                if let Ok(subscription) = result {
                    watchers.push(Watcher { subscription, storage, scope, seen: after });
                }
            }
            Step::Drain(index) if !watchers.is_empty() => {
                let chosen = index.index(watchers.len());
                drain(&mut watchers[chosen], &model)?;
            }
            Step::Drain(_) => {}
            Step::ListAt { storage, scope, revision } => {
                let (storage, scope) = (STORAGES[storage], scope.map(|scope| NAMESPACES[scope]));
                let at =
                    Revision(1 + revision.index(usize::try_from(model.revision().0).unwrap_or(1)) as u64);
                let result = subject.store.list_at(storage, scope, at);
                prop_assert_eq!(result.is_ok(), model.keeps(storage, at));
                if let Ok(list) = result {
                    check_list(&list, &model, storage, scope, at)?;
                }
            }
            Step::Restart => {
                if let Some((home, options)) = &subject.home {
                    for watcher in &mut watchers {
                        drain(watcher, &model)?;
                    }
                    watchers.clear();
                    subject.store.clone().close().await.expect("closes");
                    drop(subject.store);
                    subject.store = home.try_open(options.clone()).await.expect("opens");
                }
            }
        }
        prop_assert_eq!(subject.store.revision(), model.revision());
    }
    for watcher in &mut watchers {
        drain(watcher, &model)?;
    }
    for storage in STORAGES {
        for scope in [None, Some(""), Some("a"), Some("b")] {
            check_list(&subject.store.list(storage, scope), &model, storage, scope, model.revision())?;
        }
    }
    Ok(())
}

fn options() -> StoreOptions {
    let history = HistoryOptions { events: KEPT, ..HistoryOptions::default() };
    StoreOptions { history, ..StoreOptions::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_memory_it_does_what_the_model_does(steps in steps(60)) {
        let subject = Subject { store: Store::memory(options()), disk: Disk::Ample, home: None };
        runtime().block_on(run(subject, steps))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_disk_it_does_what_the_model_does(steps in steps(60)) {
        run_on_disk(Disk::Ample, steps)?;
    }

    #[test]
    fn on_a_disk_that_fills_up_it_does_what_the_model_does(steps in steps(60)) {
        run_on_disk(Disk::Small, steps)?;
    }
}

fn run_on_disk(disk: Disk, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let file_limit = (disk == Disk::Small).then_some(80 << 10);
    runtime().block_on(run_at(Home::file(), disk, StoreOptions { file_limit, ..options() }, steps))
}

async fn run_at(
    home: Home,
    disk: Disk,
    options: StoreOptions,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let store = home.try_open(options.clone()).await.expect("opens");
    run(Subject { store, disk, home: Some((home, options)) }, steps).await
}

#[test]
fn on_postgresql_it_does_what_the_model_does() {
    let runtime = runtime();
    // One server for all cases.
    let Some(_server) = runtime.block_on(Home::database()) else { return };
    let config = ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps(60))| {
        runtime.block_on(async {
            let home = Home::database().await.expect("was there");
            run_at(home, Disk::Ample, options(), steps).await
        })?;
    });
}
