//! A database that goes away and comes back, answers that are lost, and a second process.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use xtask::parts::{self, Postgres};

use super::super::Health;
use super::home::connect;
use super::proxy::{Mischief, Proxy};
use super::*;

/// A server that is this test's own to kill.
async fn own_server() -> Option<Postgres> {
    tokio::task::spawn_blocking(|| parts::or_skip(parts::postgres())).await.expect("no panic")
}

async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

/// Writes something, after which nothing is under way on the connection but what tests send.
async fn ready(store: &Store) -> Revision {
    create(store, &pod("first"), "1").await.expect("creates").revision
}

/// Everything that a watch has, until it has come to a revision.
async fn events_up_to(watch: &mut Subscription, last: Revision) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last.0) {
        seen.push(soon(watch).await.revision().0);
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_that_is_killed_under_load_loses_nothing_and_repeats_nothing() {
    let Some(mut server) = own_server().await else { return };
    let url = server.url();
    let store = Store::postgres(&url, StoreOptions::default()).await.expect("opens");
    let start = store.revision();
    let mut watch = store.watch("pods", None, start).expect("kept");

    let acknowledged: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let refused = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, acknowledged) = (store.clone(), Arc::clone(&acknowledged));
        let (stop, refused) = (Arc::clone(&stop), Arc::clone(&refused));
        writers.spawn(async move {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let name = format!("{writer}-{number}");
                match create(&store, &pod(&name), &"x".repeat(2000)).await {
                    Ok(made) => {
                        acknowledged.lock().expect("no panic").insert(name, made.revision.0);
                    }
                    Err(WriteError::Unreachable { .. }) => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    let count = || acknowledged.lock().expect("no panic").len();
    for _ in 0..3 {
        let before = count();
        until("writes are acknowledged", async || count() >= before + 40).await;
        server = in_thread(move || {
            server.kill();
            server.start_again().expect("starts again");
            server
        })
        .await;
    }
    let before = count();
    until("writes go on", async || count() >= before + 40).await;
    stop.store(true, Ordering::SeqCst);
    writers.join_all().await;

    let acknowledged = acknowledged.lock().expect("no panic").clone();
    let newest = store.revision();
    // In revision order, each once, none missing: also those whose writers were told nothing.
    let seen = events_up_to(&mut watch, newest).await;
    assert_eq!(seen, (start.0 + 1..=newest.0).collect::<Vec<_>>());
    let check = |store: &Store| {
        for (name, revision) in &acknowledged {
            let found = store.get(&pod(name)).map(|found| found.revision.0);
            assert_eq!(found, Some(*revision), "{name} was acknowledged");
        }
    };
    check(&store);
    let everything = |store: &Store| -> Vec<(String, u64)> {
        store.list("pods", None).iter().map(|o| (o.key.to_string(), o.revision.0)).collect()
    };
    let before = everything(&store);
    store.close().await.expect("closes");

    let store = Store::postgres(&url, StoreOptions::default()).await.expect("opens again");
    assert_eq!((store.revision(), everything(&store)), (newest, before));
    check(&store);
    let middle = Revision(start.0 + (newest.0 - start.0) / 2);
    let mut resumed = store.watch("pods", None, middle).expect("kept");
    assert_eq!(events_up_to(&mut resumed, newest).await, (middle.0 + 1..=newest.0).collect::<Vec<_>>());
    let next = create(&store, &pod("next"), "1").await.expect("creates");
    assert_eq!(next.revision, newest.next());
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_reads_go_on_and_writes_are_refused() {
    let Some(mut server) = own_server().await else { return };
    let store = Store::postgres(&server.url(), StoreOptions::default()).await.expect("opens");
    let made = create(&store, &pod("a"), "1").await.expect("creates");
    let mut watch = store.watch("pods", None, made.revision).expect("kept");
    assert_eq!(store.health(), Health::Well);
    server = in_thread(move || {
        server.kill();
        server
    })
    .await;

    for _ in 0..2 {
        // A process of the server may live a moment longer than the server.
        let error = loop {
            let now = store.get(&pod("a")).expect("there").revision;
            match update(&store, &pod("a"), now, "2").await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WriteError::Unreachable { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("the database cannot be reached: "), "{text}");
        assert!(text.ends_with("; writes go on when it is back"), "{text}");
    }
    assert!(matches!(store.health(), Health::Unreachable { .. }));
    assert!(store.get(&pod("a")).is_some());

    let server = in_thread(move || {
        server.start_again().expect("starts again");
        server
    })
    .await;
    until("it is found again without being asked", async || store.health() == Health::Well).await;
    let now = store.get(&pod("a")).expect("there").revision;
    let updated = update(&store, &pod("a"), now, "3").await.expect("updates");
    let mut last = soon(&mut watch).await;
    while last.revision() < updated.revision {
        last = soon(&mut watch).await;
    }
    assert_eq!(payload(&last.object), "3");
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_request_or_answer_is_lost_happens_once() {
    let Some(server) = own_server().await else { return };
    let proxy = Proxy::to(server.port()).await;
    let url = format!("postgres://steersman@{}/postgres", proxy.address);
    let store = Store::postgres(&url, StoreOptions::default()).await.expect("opens");
    let mut expected = ready(&store).await;
    let mut watch = store.watch("pods", None, expected).expect("kept");
    let both = [Mischief::LoseRequest, Mischief::LoseAnswer];
    for (number, mischief) in both.into_iter().cycle().take(10).enumerate() {
        proxy.set(mischief);
        let made = create(&store, &pod(&number.to_string()), "1").await.expect("creates");
        assert!(proxy.is_done(), "{mischief:?}");
        expected = expected.next();
        assert_eq!(made.revision, expected, "{mischief:?}");
        assert_eq!(soon(&mut watch).await.revision(), expected, "{mischief:?}");
    }
    assert!(watch.try_next().is_none());
    store.close().await.expect("closes");
    let store = Store::postgres(&server.url(), StoreOptions::default()).await.expect("opens");
    assert_eq!((store.revision(), store.list("pods", None).len()), (expected, 11));
}

/// The answer to a commit is lost and nobody can be reached for longer than writers wait: they are
/// told that nobody knows, and readers see the write as soon as it is known that it happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_unknown_fate_is_seen_when_the_database_is_back() {
    let Some(server) = own_server().await else { return };
    let proxy = Proxy::to(server.port()).await;
    let url = format!("postgres://steersman@{}/postgres", proxy.address);
    let store = Store::postgres(&url, StoreOptions::default()).await.expect("opens");
    let mut watch = store.watch("pods", None, ready(&store).await).expect("kept");
    proxy.set(Mischief::LoseAnswer);
    let writing = tokio::spawn({
        let store = store.clone();
        async move { create(&store, &pod("a"), "1").await }
    });
    until("the answer is lost", async || proxy.is_done()).await;
    proxy.set(Mischief::Closed);
    match writing.await.expect("no panic") {
        Err(WriteError::Unreachable { .. }) => assert!(store.get(&pod("a")).is_none(), "nobody knows yet"),
        // The new connection was faster than this test.
        Ok(_) => {}
        Err(other) => panic!("{other}"),
    }
    proxy.set(Mischief::None);
    let event = soon(&mut watch).await;
    assert_eq!((&*event.object.key.name, payload(&event.object).as_str()), ("a", "1"));
    let next = create(&store, &pod("b"), "1").await.expect("creates");
    assert_eq!(next.revision, event.revision().next());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_told_who_has_the_database() {
    let Some(home) = Home::database().await else { return };
    let store = home.open().await;
    let refused = home.try_open(StoreOptions::default()).await.expect_err("in use").to_string();
    let me = format!("is in use by process {} on ", std::process::id());
    assert!(refused.contains(&me), "{refused}");
    assert!(refused.ends_with(": stop that one first, or choose another database"), "{refused}");
    create(&store, &pod("a"), "1").await.expect("the first is not disturbed");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_the_database_over_ends_the_writing_of_the_one_before() {
    let Some(server) = own_server().await else { return };
    let proxy = Proxy::to(server.port()).await;
    let url = format!("postgres://steersman@{}/postgres", proxy.address);
    let first = Store::postgres(&url, StoreOptions::default()).await.expect("opens");
    let made = create(&first, &pod("a"), "1").await.expect("creates");
    let mut watch = first.watch("pods", None, made.revision).expect("kept");
    proxy.set(Mischief::Closed);

    let second = Store::postgres(&server.url(), StoreOptions::default()).await.expect("opens");
    let next = create(&second, &pod("b"), "1").await.expect("creates");
    assert_eq!(next.revision, made.revision.next());
    proxy.set(Mischief::None);
    let by = tokio::time::timeout(Duration::from_secs(60), first.deposed()).await.expect("told");
    assert!(by.starts_with(&format!("process {} on ", std::process::id())), "{by}");
    assert!(create(&first, &pod("c"), "1").await.is_err(), "it writes no more");
    assert!(watch.next().await.is_none(), "its watches end");
    create(&second, &pod("c"), "1").await.expect("the second goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_format_and_a_closed_door_are_named() {
    let Some(home) = Home::database().await else { return };
    drop(home.open().await);
    home.sql("UPDATE store SET format = 99").await;
    let error = home.try_open(StoreOptions::default()).await.expect_err("newer").to_string();
    let text = "has format 99, and this version reads up to format 1: use the newer version that wrote it";
    assert!(error.ends_with(text), "{error}");

    let Home::Database { url, .. } = &home else { unreachable!("it is a database") };
    let wrong = format!("{url}_other");
    let error = Store::postgres(&wrong, StoreOptions::default()).await.expect_err("no such database");
    let error = error.to_string();
    assert!(error.starts_with("cannot reach PostgreSQL at postgres://127.0.0.1:"), "{error}");
    assert!(error.contains("does not exist; check that it runs there, and the user"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_keep_in_the_database_is_left_alone() {
    let Some(home) = Home::database().await else { return };
    let Home::Database { url, .. } = &home else { unreachable!("it is a database") };
    let client = connect(url).await;
    client
        .batch_execute("CREATE TABLE objects (mine text); INSERT INTO objects VALUES ('x')")
        .await
        .expect("mine");
    let store = home.open().await;
    create(&store, &pod("a"), "1").await.expect("creates");
    let mine: i64 = client.query_one("SELECT count(*) FROM objects", &[]).await.expect("mine").get(0);
    assert_eq!(mine, 1);
}
