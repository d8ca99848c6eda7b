//! Backups: what they hold, into what they can be restored, and what others see of it.

use super::super::{Backup, Restored};
use super::*;
use crate::object::Change;

fn contents(store: &Store) -> Vec<(String, String)> {
    let storages = store.storages().into_iter().filter(|storage| !storage.contains("leases"));
    let lists: Vec<_> = storages.map(|storage| store.list(&storage, None)).collect();
    lists.iter().flat_map(|list| list.iter()).map(|o| (o.key.to_string(), payload(o))).collect()
}

fn through_a_file(backup: &Backup) -> Backup {
    let mut file = Vec::new();
    backup.write(&mut file).expect("writes");
    Backup::read(&file[..]).expect("reads")
}

#[tokio::test]
async fn a_backup_of_any_store_can_be_restored_into_any_other() {
    for (from, _home) in stores().await {
        let made = create(&from, &pod("a"), "a1").await.expect("creates");
        update(&from, &pod("a"), made.revision, "a2").await.expect("updates");
        create(&from, &Key::new("nodes", "", "n"), "1").await.expect("creates");
        create(&from, &Key::new("coordination.k8s.io/leases", "x", "l"), "mine").await.expect("creates");
        let backup = through_a_file(&from.backup());
        assert_eq!((backup.revision(), backup.len()), (from.revision(), 2));
        for (into, home) in stores().await {
            create(&into, &pod("other"), "1").await.expect("creates");
            let restored = into.restore(backup.clone()).await.expect("restores");
            assert_eq!(restored, Restored { created: 2, updated: 0, deleted: 1, unchanged: 0 });
            assert_eq!(contents(&into), contents(&from));
            let again = into.restore(backup.clone()).await.expect("restores");
            assert_eq!(again, Restored { unchanged: 2, ..Restored::default() });
            if let Some(home) = home {
                let (revision, expected) = (into.revision(), contents(&into));
                into.close().await.expect("closes");
                let into = home.open().await;
                assert_eq!((into.revision(), contents(&into)), (revision, expected));
                assert!(
                    into.watch("things", None, from.revision()).is_err(),
                    "still nobody goes on from before"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_restore_is_seen_by_watchers_as_the_changes_that_it_makes() {
    for (store, _home) in stores().await {
        let kept = create(&store, &pod("kept"), "1").await.expect("creates");
        let changed = create(&store, &pod("changed"), "old").await.expect("creates");
        let gone = create(&store, &pod("gone"), "1").await.expect("creates");
        let lease = Key::new("coordination.k8s.io/leases", "x", "l");
        let held = create(&store, &lease, "then").await.expect("creates");
        let backup = store.backup();
        update(&store, &pod("changed"), changed.revision, "new").await.expect("updates");
        delete(&store, &pod("gone"), gone.revision).await.expect("deletes");
        create(&store, &pod("later"), "1").await.expect("creates");
        update(&store, &lease, held.revision, "now").await.expect("updates");
        let before = store.revision();
        let mut watch = store.watch("pods", None, before).expect("kept");

        let restored = store.restore(backup).await.expect("restores");
        assert_eq!(restored, Restored { created: 1, updated: 1, deleted: 1, unchanged: 1 });
        let mut seen = Vec::new();
        for _ in 0..3 {
            let event = soon(&mut watch).await;
            seen.push((event.revision().0, event.kind, event.object.key.name.to_string()));
        }
        let next = |number: u64, kind, name: &str| (before.0 + number, kind, name.to_owned());
        let expected = [
            next(1, Change::Modified, "changed"),
            next(2, Change::Deleted, "later"),
            next(3, Change::Added, "gone"),
        ];
        assert_eq!(seen, expected);
        assert!(watch.try_next().is_none());
        assert_eq!(payload(&store.get(&lease).expect("there")), "now", "leases say who is alive now");
        assert_eq!(store.get(&pod("kept")).expect("there").revision, kept.revision);
    }
}

#[tokio::test]
async fn revisions_go_on_behind_those_of_the_store_that_was_lost() {
    for (store, home) in stores().await {
        let lost = Store::memory(StoreOptions::default());
        for number in 0..5 {
            create(&lost, &pod(&number.to_string()), "1").await.expect("creates");
        }
        let old = lost.revision();
        store.restore(lost.backup()).await.expect("restores");
        assert!(store.revision().0 > old.0 + 1_000_000, "{}", store.revision());
        for storage in ["pods", "never/seen"] {
            let expired = store.watch(storage, None, old).expect_err("clients must list again");
            assert!(expired.oldest > old);
        }
        let next = create(&store, &pod("next"), "1").await.expect("creates");
        let Some(home) = home else { continue };
        store.close().await.expect("closes");
        let store = home.open().await;
        assert_eq!(store.revision(), next.revision);
        assert!(store.watch("never/seen", None, old).is_err(), "also after a restart");
        assert!(store.watch("pods", None, Revision(next.revision.0 - 2)).is_ok());
    }
}

#[tokio::test]
async fn a_backup_during_writes_is_one_moment() {
    for (store, _home) in stores().await {
        let writer = tokio::spawn({
            let store = store.clone();
            async move {
                for number in 0..200 {
                    create(&store, &pod(&format!("{number:03}")), "1").await.expect("creates");
                }
            }
        });
        until("it has begun", async || !store.list("pods", None).is_empty()).await;
        let backup = through_a_file(&store.backup());
        writer.await.expect("no panic");
        let into = Store::memory(StoreOptions::default());
        into.restore(backup.clone()).await.expect("restores");
        assert_eq!(into.list("pods", None).len() as u64, backup.revision().0 - 1, "all up to its revision");
    }
}

#[tokio::test]
async fn a_file_that_is_no_whole_backup_is_refused() {
    let store = Store::memory(StoreOptions::default());
    for number in 0..20 {
        create(&store, &pod(&number.to_string()), "1").await.expect("creates");
    }
    let mut file = Vec::new();
    store.backup().write(&mut file).expect("writes");
    for cut in [0, 10, file.len() / 2, file.len() - 9] {
        let error = Backup::read(&file[..cut]).expect_err("cut").to_string();
        assert!(error.contains("no backup") || error.contains("damaged"), "{error}");
    }
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&file[..]), &mut text).expect("unpacks");
    let zipped = |text: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut out, text).expect("packs");
        out.finish().expect("packs")
    };
    let changed =
        String::from_utf8(text.clone()).expect("text").replacen("\"spec\":\"1\"", "\"spec\":\"2\"", 1);
    let error = Backup::read(&zipped(changed.as_bytes())[..]).expect_err("changed").to_string();
    assert_eq!(error, "the backup is damaged: the checksum is another; use another one");
    let newer = String::from_utf8(text).expect("text").replacen("\"format\":1", "\"format\":9", 1);
    let error = Backup::read(&zipped(newer.as_bytes())[..]).expect_err("newer").to_string();
    assert_eq!(error, "the backup has format 9, and this version reads up to format 1: use a newer version");
    let error = Backup::read(&zipped(b"{}\n")[..]).expect_err("foreign").to_string();
    assert!(error.starts_with("this is no backup: "), "{error}");
    let error = Backup::read(&b"plain text"[..]).expect_err("foreign").to_string();
    assert!(error.starts_with("this is no backup: "), "{error}");
}
