use std::path::Path;

use super::super::{HistoryOptions, OpenError};
use super::*;
use crate::object::Change;

fn open(path: &Path) -> Store {
    Store::sqlite(path, StoreOptions::default()).expect("opens")
}

#[tokio::test]
async fn a_restart_finds_objects_history_and_revision() {
    for home in homes().await {
        a_restart_finds_everything(&home).await;
    }
}

async fn a_restart_finds_everything(home: &Home) {
    let store = home.open().await;
    let start = store.revision();
    let a = create(&store, &pod("a"), "a1").await.expect("creates");
    let b = create(&store, &pod("b"), "b1").await.expect("creates");
    update(&store, &pod("a"), a.revision, "a2").await.expect("updates");
    let gone = delete(&store, &pod("b"), b.revision).await.expect("deletes");
    create(&store, &pod("b"), "b2").await.expect("creates again");
    let last = delete(&store, &pod("b"), gone.revision.next()).await.expect("deletes again");
    store.close().await.expect("closes");

    let store = home.open().await;
    assert_eq!(store.revision(), last.revision);
    assert_eq!(payload(&store.get(&pod("a")).expect("there")), "a2");
    let mut watch = store.watch("pods", None, start).expect("history survives");
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next() {
        let event = event.expect("kept");
        let previous = event.previous.as_ref().map(|previous| (previous.revision.0, payload(previous)));
        seen.push((event.kind, event.revision().0, event.object.created.0, payload(&event.object), previous));
    }
    let event = |kind, revision, created, payload: &str, previous: Option<(u64, &str)>| {
        let previous = previous.map(|(revision, payload)| (revision, payload.to_owned()));
        (kind, revision, created, payload.to_owned(), previous)
    };
    assert_eq!(
        seen,
        [
            event(Change::Added, 2, 2, "a1", None),
            event(Change::Added, 3, 3, "b1", None),
            event(Change::Modified, 4, 2, "a2", Some((2, "a1"))),
            event(Change::Deleted, 5, 3, "gone", Some((3, "b1"))),
            event(Change::Added, 6, 6, "b2", None),
            event(Change::Deleted, 7, 6, "gone", Some((6, "b2"))),
        ]
    );
    let names: Vec<_> =
        store.list_at("pods", None, Revision(4)).expect("kept").iter().map(|o| payload(o)).collect();
    assert_eq!(names, ["a2", "b1"]);
    assert_eq!(create(&store, &pod("c"), "1").await.expect("creates").revision, last.revision.next());
}

#[tokio::test]
async fn revisions_do_not_go_back_when_everything_is_deleted_and_forgotten() {
    let history = HistoryOptions { events: 0, ..HistoryOptions::default() };
    let options = StoreOptions { history, ..StoreOptions::default() };
    for home in homes().await {
        let store = home.try_open(options.clone()).await.expect("opens");
        let made = create(&store, &pod("a"), "1").await.expect("creates");
        let last = delete(&store, &pod("a"), made.revision).await.expect("deletes");
        drop(store);
        let store = home.try_open(options.clone()).await.expect("opens");
        assert_eq!(store.revision(), last.revision);
        assert!(store.watch("pods", None, made.revision).is_err(), "what is forgotten stays forgotten");
    }
}

#[tokio::test]
async fn forgotten_history_leaves_the_database_and_stays_forgotten() {
    let history = HistoryOptions { events: 10, ..HistoryOptions::default() };
    let options = StoreOptions { history, ..StoreOptions::default() };
    for home in homes().await {
        let store = home.try_open(options.clone()).await.expect("opens");
        create(&store, &Key::new("services", "default", "s"), "1").await.expect("creates");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..1200 {
            let store = store.clone();
            tasks.spawn(async move { create(&store, &pod(&number.to_string()), "1").await.is_ok() });
        }
        assert!(tasks.join_all().await.into_iter().all(|created| created));
        create(&store, &pod("last"), "1").await.expect("creates");
        let newest = store.revision();
        until("rows leave", async || home.sql("SELECT count(*) FROM history").await < 1200).await;
        store.close().await.expect("closes");

        // With a larger limit, what is gone must not seem to be there.
        let store = home.open().await;
        assert_eq!(store.list("pods", None).len(), 1201);
        let oldest = store.watch("pods", None, Revision(1)).expect_err("forgotten").oldest;
        assert!(oldest > Revision(1000) && oldest < newest);
        assert!(store.watch("services", None, Revision(1)).is_ok());
    }
}

#[tokio::test]
async fn contents_that_contradict_themselves_are_refused_with_a_remedy() {
    for home in homes().await {
        let store = home.open().await;
        create(&store, &pod("a"), "1").await.expect("creates");
        store.close().await.expect("closes");
        for (damage, repair, what) in [
            ("UPDATE objects SET revision = 99", "UPDATE objects SET revision = 2", "the newest is 2"),
            ("UPDATE objects SET created = 9", "UPDATE objects SET created = 2", "the newest is 2"),
            ("UPDATE objects SET storage = 7", "UPDATE objects SET storage = 1", "is in storage 7"),
            ("UPDATE history SET change = 9", "UPDATE history SET change = 1", "a change of kind 9"),
            ("UPDATE history SET change = 2", "UPDATE history SET change = 1", "has lost its version"),
        ] {
            home.sql(damage).await;
            let error = home.try_open(StoreOptions::default()).await.expect_err("damaged").to_string();
            assert!(error.contains("is damaged: ") && error.contains(what), "{error}");
            assert!(error.ends_with("; restore it from a backup"), "{error}");
            home.sql(repair).await;
        }
        assert_eq!(home.open().await.list("pods", None).len(), 1);
    }
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    let first = open(&file);
    let refused = Store::sqlite(&file, StoreOptions::default()).expect_err("locked");
    let expected = format!(
        "{} is in use by process {}: stop that one first, or choose another data folder",
        file.display(),
        std::process::id()
    );
    assert_eq!(refused.to_string(), expected);
    create(&first, &pod("a"), "1").await.expect("the first is not disturbed");
    drop(first);
    assert_eq!(open(&file).list("pods", None).len(), 1);
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    let options = StoreOptions { file_limit: Some(256 << 10), ..StoreOptions::default() };
    let store = Store::sqlite(&file, options).expect("opens");
    let mut watch = store.watch("pods", None, store.revision()).expect("kept");
    let large = "x".repeat(40_000);
    let mut made = Vec::new();
    let error = loop {
        match create(&store, &pod(&made.len().to_string()), &large).await {
            Ok(stored) => made.push(stored),
            Err(error) => break error,
        }
        assert!(made.len() < 100, "the limit holds");
    };
    assert!(matches!(error, WriteError::Full), "{error}");
    assert!(!made.is_empty());
    let (revision, count) = (store.revision(), made.len());
    assert_eq!(revision, made[count - 1].revision);
    assert!(store.get(&pod(&count.to_string())).is_none());
    for stored in &made {
        assert_eq!(soon(&mut watch).await.revision(), stored.revision);
    }
    assert!(watch.try_next().is_none());

    let small = create(&store, &pod("small"), "1").await.expect("what fits is written");
    assert_eq!(small.revision, revision.next());
    store.close().await.expect("closes");
    let store = open(&file);
    assert_eq!((store.list("pods", None).len(), store.revision()), (count + 1, small.revision));
    create(&store, &pod(&count.to_string()), &large).await.expect("without the limit there is room");
}

#[test]
fn a_disk_without_room_for_the_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    let options = StoreOptions { file_limit: Some(1), ..StoreOptions::default() };
    let error = Store::sqlite(&file, options).expect_err("no room");
    let expected =
        format!("cannot open {}: its disk is full; free some space, or put it elsewhere", file.display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_newer_format_and_a_foreign_file_are_refused_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let newer = folder.path().join("newer.db");
    drop(open(&newer));
    rusqlite::Connection::open(&newer)
        .and_then(|file| file.pragma_update(None, "user_version", 99))
        .expect("writable");
    let error = Store::sqlite(&newer, StoreOptions::default()).expect_err("newer");
    assert!(matches!(error, OpenError::Newer { found: 99, .. }));
    let text = "has format 99, and this version reads up to format 1: use the newer version that wrote it";
    assert!(error.to_string().ends_with(text), "{error}");

    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .and_then(|file| file.execute_batch("CREATE TABLE things (id INTEGER)"))
        .expect("writable");
    let prose = folder.path().join("notes.txt");
    std::fs::write(&prose, "Dear diary, ".repeat(1000)).expect("writable");
    for file in [other, prose] {
        let before = std::fs::read(&file).expect("readable");
        let error = Store::sqlite(&file, StoreOptions::default()).expect_err("foreign");
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read(&file).expect("readable"), before);
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error =
        Store::sqlite(Path::new("/nonexistent/state.db"), StoreOptions::default()).expect_err("no folder");
    assert!(error.to_string().starts_with("cannot use /nonexistent/state.db.lock: "), "{error}");
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    let _store = open(&file);
    for name in ["state.db", "state.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
