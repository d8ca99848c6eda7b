use super::super::HistoryOptions;
use super::*;
use crate::object::Change;

#[tokio::test]
async fn a_watch_after_a_snapshot_misses_nothing_and_repeats_nothing() {
    let store = Store::memory(StoreOptions::default());
    create(&store, &pod("before"), "1").await.expect("creates");
    let snapshot = store.list("pods", None);
    let made = create(&store, &pod("between"), "1").await.expect("creates");
    let mut watch = store.watch("pods", None, snapshot.revision).expect("kept");
    update(&store, &pod("between"), made.revision, "2").await.expect("updates");

    let (added, modified) = (soon(&mut watch).await, soon(&mut watch).await);
    assert_eq!((added.kind, &*added.object.key.name), (Change::Added, "between"));
    assert!(added.previous.is_none());
    assert_eq!((modified.kind, payload(&modified.object).as_str()), (Change::Modified, "2"));
    assert_eq!(modified.previous.as_ref().map(|previous| payload(previous)).as_deref(), Some("1"));
    assert!(watch.try_next().is_none());
}

#[tokio::test]
async fn a_watch_sees_its_storage_and_its_namespace_only() {
    let store = Store::memory(StoreOptions::default());
    let mut watch = store.watch("pods", Some("a"), store.revision()).expect("kept");
    create(&store, &Key::new("pods", "b", "x"), "1").await.expect("creates");
    create(&store, &Key::new("services", "a", "x"), "1").await.expect("creates");
    create(&store, &Key::new("pods", "a", "y"), "1").await.expect("creates");
    assert_eq!(soon(&mut watch).await.object.key.to_string(), "pods/a/y");
}

#[tokio::test]
async fn a_watch_is_woken_by_a_write() {
    let store = Store::memory(StoreOptions::default());
    let mut watch = store.watch("pods", None, store.revision()).expect("kept");
    let waiting = tokio::spawn(async move { soon(&mut watch).await.object.revision });
    tokio::task::yield_now().await;
    create(&store, &Key::new("services", "default", "s"), "1").await.expect("creates");
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let made = create(&store, &pod("a"), "1").await.expect("creates");
    assert_eq!(waiting.await.expect("no panic"), made.revision);
}

#[tokio::test]
async fn progress_runs_ahead_of_a_quiet_watch_but_never_past_an_event() {
    let store = Store::memory(StoreOptions::default());
    let mut watch = store.watch("pods", Some("a"), store.revision()).expect("kept");
    for name in ["x", "y"] {
        create(&store, &Key::new("pods", "b", name), "1").await.expect("creates");
    }
    assert_eq!(watch.progress(), Revision(3));
    create(&store, &Key::new("pods", "a", "z"), "1").await.expect("creates");
    create(&store, &Key::new("pods", "b", "z"), "1").await.expect("creates");
    let behind = watch.progress();
    assert!(behind < Revision(4), "{behind} is past an event that was not handed out");
    assert_eq!(soon(&mut watch).await.revision(), Revision(4));
    assert_eq!(watch.progress(), Revision(5));
}

#[tokio::test]
async fn a_watch_that_falls_out_of_the_history_lags_and_one_elsewhere_does_not() {
    let history = HistoryOptions { events: 3, ..HistoryOptions::default() };
    let store = Store::memory(StoreOptions { history, ..StoreOptions::default() });
    let start = store.revision();
    let mut slow = store.watch("pods", None, start).expect("kept");
    let mut quiet = store.watch("services", None, start).expect("kept");
    create(&store, &Key::new("services", "default", "s"), "1").await.expect("creates");
    for name in ["a", "b", "c", "d"] {
        create(&store, &pod(name), "1").await.expect("creates");
    }
    let lagged = slow.next().await.expect("open").expect_err("lagged");
    assert_eq!((lagged.cursor, lagged.oldest), (start, Revision(3)));
    assert_eq!(
        lagged.to_string(),
        "the watch at revision 1 fell behind: the oldest kept is 3, list and watch again"
    );
    let expired = store.watch("pods", None, start).expect_err("expired");
    assert_eq!(expired.to_string(), "revision 1 is no longer kept: the oldest is 3, list again");
    assert_eq!(store.list_at("pods", None, Revision(2)).expect_err("expired").oldest, Revision(3));
    assert_eq!(store.list_at("pods", None, Revision(3)).expect("kept").len(), 1);
    let future = store.list_at("pods", None, Revision(9)).expect_err("not there yet");
    assert_eq!(future.to_string(), "revision 9 is not reached yet: the newest is 6");
    assert_eq!(soon(&mut quiet).await.object.key.to_string(), "services/default/s");
    assert!(store.list_at("services", None, start).expect("kept").is_empty());
}

#[tokio::test]
async fn the_largest_history_gives_way_when_all_are_too_large() {
    let history = HistoryOptions { total_bytes: 20_000, ..HistoryOptions::default() };
    let store = Store::memory(StoreOptions { history, ..StoreOptions::default() });
    let start = store.revision();
    create(&store, &Key::new("services", "default", "s"), "1").await.expect("creates");
    let mut revision = create(&store, &pod("a"), "1").await.expect("creates").revision;
    for _ in 0..100 {
        revision = update(&store, &pod("a"), revision, &"x".repeat(1000)).await.expect("updates").revision;
    }
    assert!(store.watch("pods", None, start).is_err());
    assert!(store.watch("pods", None, Revision(revision.0 - 3)).is_ok());
    assert!(store.watch("services", None, start).is_ok());
}

#[tokio::test]
async fn closing_ends_watches_after_their_last_event_and_refuses_writes() {
    for (store, _home) in stores().await {
        let mut watch = store.watch("pods", None, store.revision()).expect("kept");
        let made = create(&store, &pod("a"), "1").await.expect("creates");
        store.clone().close().await.expect("closes");
        assert_eq!(soon(&mut watch).await.revision(), made.revision);
        assert!(watch.next().await.is_none());
        assert!(matches!(create(&store, &pod("b"), "1").await, Err(WriteError::Closed)));
        assert_eq!(store.list("pods", None).len(), 1);
        let mut late = store.watch("pods", None, store.revision()).expect("kept");
        assert!(late.next().await.is_none());
        store.close().await.expect("closing twice is fine");
    }
}

#[tokio::test]
async fn dropping_the_last_handle_ends_watches() {
    let store = Store::memory(StoreOptions::default());
    let mut watch = store.watch("pods", None, store.revision()).expect("kept");
    drop(store);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn under_a_paused_clock_writes_and_watches_take_no_time() {
    let started = tokio::time::Instant::now();
    let store = Store::memory(StoreOptions::default());
    let mut watch = store.watch("pods", None, store.revision()).expect("kept");
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for hour in 1..=3_u64 {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                create(&store, &pod(&hour.to_string()), "1").await.expect("creates");
            }
        }
    });
    for hour in 1..=3 {
        let event = tokio::time::timeout(Duration::from_secs(7200), watch.next()).await.expect("in time");
        assert_eq!(&*event.expect("open").expect("kept").object.key.name, hour.to_string());
        assert_eq!(started.elapsed().as_secs(), hour * 3600);
    }
    writer.await.expect("no panic");
}

#[tokio::test]
async fn every_watcher_sees_every_write_in_order_while_many_write() {
    for (store, _home) in stores().await {
        every_watcher_sees_every_write_in_order(store).await;
    }
}

async fn every_watcher_sees_every_write_in_order(store: Store) {
    let start = store.revision();
    let (writers, each, watchers) = (20_u64, 10, 5);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        let mut watch = store.watch("pods", None, start).expect("kept");
        tasks.spawn(async move {
            for number in 1..=writers * each {
                assert_eq!(soon(&mut watch).await.revision(), Revision(start.0 + number));
            }
        });
    }
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            for number in 0..each {
                let key = pod(&format!("{writer}-{number}"));
                let made = create(&store, &key, "1").await.expect("creates");
                let read = store.get(&key).expect("a write is read after it is acknowledged");
                assert_eq!(read.revision, made.revision);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(store.revision(), Revision(start.0 + writers * each));
}
