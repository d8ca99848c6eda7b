//! What a crash leaves: everything acknowledged, nothing half done, no revision twice.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::Rng;

use super::*;

fn open(path: &Path) -> Store {
    Store::sqlite(path, StoreOptions::default()).expect("opens")
}

/// The log of a database is cut at every kind of place; what opens is the state after some prefix of
/// the writes, and no shorter a prefix than what was acknowledged before the copy.
#[tokio::test]
async fn a_log_that_ends_anywhere_opens_as_a_prefix_of_the_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, log) = (folder.path().join("state.db"), folder.path().join("state.db-wal"));
    let store = open(&file);
    let mut acknowledged = vec![(std::fs::metadata(&log).expect("a log").len(), Revision(1))];
    for number in 0..30 {
        let key = pod(&(number % 7).to_string());
        match store.get(&key) {
            None => create(&store, &key, &number.to_string()).await,
            Some(old) if number % 3 == 0 => delete(&store, &key, old.revision).await,
            Some(old) => update(&store, &key, old.revision, &number.to_string()).await,
        }
        .expect("writes");
        acknowledged.push((std::fs::metadata(&log).expect("a log").len(), store.revision()));
    }
    let database = std::fs::read(&file).expect("readable");
    let whole = std::fs::read(&log).expect("readable");
    let shown = |store: &Store, at: Revision| -> Vec<(String, u64, String)> {
        let list = store.list_at("pods", None, at).expect("kept");
        list.iter().map(|o| (o.key.to_string(), o.revision.0, payload(o))).collect()
    };

    let mut random = rand::rng();
    let (start, _) = acknowledged[0];
    let start = usize::try_from(start).expect("small");
    for _ in 0..40 {
        let cut = random.random_range(start..=whole.len());
        let copy = folder.path().join("copy.db");
        std::fs::write(&copy, &database).expect("writable");
        std::fs::write(folder.path().join("copy.db-wal"), &whole[..cut]).expect("writable");
        let _ = std::fs::remove_file(folder.path().join("copy.db-shm"));

        let crashed = open(&copy);
        let revision = crashed.revision();
        let safe =
            acknowledged.iter().rev().find(|(length, _)| *length <= cut as u64).expect("the first fits");
        assert!(revision >= safe.1, "revision {revision} after a cut at {cut}, {} was acknowledged", safe.1);
        for at in 1..=revision.0 {
            assert_eq!(shown(&crashed, Revision(at)), shown(&store, Revision(at)), "at revision {at}");
        }
        let next = create(&crashed, &pod("next"), "1").await.expect("goes on");
        assert_eq!(next.revision, revision.next());
    }
}

/// Set for the process that is to be killed: where its database is.
const VICTIM: &str = "STEERSMAN_STORE_CRASH_TEST";

/// Not a test of its own: what the victim runs.
#[tokio::test]
async fn victim_that_writes_until_it_is_killed() {
    let Ok(place) = std::env::var(VICTIM) else { return };
    let store = if place.starts_with("postgres://") {
        Store::postgres(&place, StoreOptions::default()).await.expect("opens")
    } else {
        open(Path::new(&place))
    };
    let tag = store.revision().0;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let store = store.clone();
        writers.spawn(async move {
            let filling = "x".repeat(8_000);
            for number in 0..100_000 {
                let key = pod(&format!("{tag}-{writer}-{number}"));
                let made = create(&store, &key, &filling).await.expect("creates");
                say(&format!("acknowledged {} {}", made.revision, key.name));
                if number % 2 == 0 {
                    let gone = delete(&store, &key, made.revision).await.expect("deletes");
                    say(&format!("deleted {} {}", gone.revision, key.name));
                }
            }
        });
    }
    writers.join_all().await;
}

/// A line in one piece, past the test harness, which would hold it back.
fn say(line: &str) {
    use std::io::Write;
    let _ = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    for home in homes().await {
        kills_lose_nothing(&home).await;
    }
}

async fn kills_lose_nothing(home: &Home) {
    let place = match home {
        Home::File { file, .. } => file.display().to_string(),
        Home::Database { url, .. } => url.clone(),
    };
    let mut alive = std::collections::BTreeSet::new();
    let mut newest = Revision(1);
    let mut random = rand::rng();
    for _ in 0..4 {
        let mut victim = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "store::tests::crash::victim_that_writes_until_it_is_killed", "--nocapture"])
            .env(VICTIM, &place)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        // Some lines after which to pull the plug; more may be in the pipe, and count as well.
        let enough = random.random_range(50..1500);
        let mut lines = BufReader::new(victim.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut seen: Vec<String> = Vec::new();
        while seen.len() < enough {
            seen.extend(lines.next());
        }
        victim.kill().expect("kills");
        victim.wait().expect("ends");
        seen.extend(lines);
        let mut unknown = std::collections::BTreeSet::new();
        for line in seen {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, revision, name] = words[..] else { continue };
            let Ok(revision) = revision.parse::<Revision>() else { continue };
            newest = newest.max(revision);
            match what {
                "acknowledged" => {
                    alive.insert(name.to_owned());
                    // Its deletion may have been under way.
                    unknown.insert(name.to_owned());
                }
                "deleted" => {
                    alive.remove(name);
                    unknown.remove(name);
                    assert!(!alive.contains(name));
                }
                _ => {}
            }
        }
        let store = home.open().await;
        assert!(store.revision() >= newest, "revision went back from {newest} to {}", store.revision());
        newest = store.revision();
        let found: std::collections::BTreeSet<String> =
            store.list("pods", None).iter().map(|object| object.key.name.to_string()).collect();
        for name in &alive {
            let number: u64 = name.rsplit('-').next().and_then(|n| n.parse().ok()).expect("numbered");
            let may_be_gone = number.is_multiple_of(2) && unknown.contains(name);
            assert!(found.contains(name) || may_be_gone, "{name} was acknowledged and is lost");
        }
        alive = found;
        store.close().await.expect("closes");
    }
}
