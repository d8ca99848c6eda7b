//! The history in SQLite and in a real PostgreSQL: one suite for both, then what only a server
//! can do: go away, come back, and be looked into.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use steersman::CancellationToken;
use steersman_infra::action::Registry;
use steersman_infra::history::{HistoryError, Record};
use steersman_infra::types::State;
use steersman_infra::{Environment, History, PostgresOptions, Resource, RestOptions, rest};
use support::service::ask;
use support::{World, box_type, cluster, create_box, operate};
use tokio::net::{TcpListener, TcpStream};
use xtask::parts::{self, Postgres, or_skip};

fn record(attempt: &str, generation: i64) -> Record {
    Record {
        attempt: attempt.into(),
        resource_id: 1,
        resource_uid: "u".into(),
        resource_name: "pg".into(),
        resource_type: "DatabaseCluster/v1".into(),
        action_plugin: "http".into(),
        generation,
        success: generation != 2,
        phase: "completed".into(),
        error_message: (generation == 2).then(|| "it's; DROP TABLE resources --\u{1F600}".into()),
        created: 1,
        updated: 0,
        deleted: u32::MAX,
        plan: Some("1 to create".into()),
        apply: None,
        trigger: "initial".into(),
        drift: false,
        duration: Duration::from_millis(1500),
        time: Timestamp::from_second(1_700_000_000).expect("a time"),
    }
}

/// What every history must do, opened as often as asked.
async fn keeps_what_it_is_told(open: impl Fn() -> History) {
    let history = open();
    for (attempt, generation) in [("a", 1), ("a", 1), ("b", 2), ("c", 3)] {
        history.record(record(attempt, generation)).await.expect("recorded");
    }
    drop(history);
    let history = open();
    let all = history.of(1, 10, None).await.expect("entries");
    let generations: Vec<i64> = all.iter().map(|(_, record)| record.generation).collect();
    assert_eq!(generations, [3, 2, 1], "told twice, recorded once, newest first");
    assert_eq!((&all[2].1, &all[1].1), (&record("a", 1), &record("b", 2)));
    let page = history.of(1, 1, Some(all[0].0)).await.expect("entries");
    assert_eq!(page[0].1.generation, 2);
    assert!(history.of(2, 10, None).await.expect("entries").is_empty());
    assert!(history.knows(1).await.expect("an answer") && !history.knows(2).await.expect("an answer"));
    history.check().await.expect("it answers");
}

fn server() -> Option<Postgres> {
    or_skip(parts::postgres())
}

fn options(port: u16, database: &str) -> PostgresOptions {
    PostgresOptions {
        host: "127.0.0.1".into(),
        port,
        name: database.into(),
        user: "steersman".into(),
        ..PostgresOptions::default()
    }
}

fn history(port: u16) -> History {
    History::postgres(&options(port, "postgres")).expect("a history")
}

#[tokio::test]
async fn a_file_keeps_what_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    keeps_what_it_is_told(|| History::open(&folder.path().join("history.db")).expect("a history")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_keeps_what_it_is_told() {
    let Some(server) = server() else { return };
    keeps_what_it_is_told(|| history(server.port())).await;
    let count = server.query("SELECT count(*) FROM reconciliation_history").expect("a count");
    assert_eq!(count, "3");
    let mut strange = record("d", 4);
    strange.apply = Some("a\0b".into());
    history(server.port()).record(strange).await.expect("a text with NUL is kept without it");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_make_the_tables_once_and_newer_ones_are_refused() {
    let Some(server) = server() else { return };
    let all: Vec<History> = (0..8).map(|_| history(server.port())).collect();
    let checks = futures::future::join_all(all.iter().map(History::check)).await;
    assert!(checks.iter().all(Result::is_ok), "{checks:?}");
    assert_eq!(server.query("SELECT count(*) FROM schema_migrations").expect("a count"), "1");
    for table in ["resource_types", "resources", "reconciliation_history", "locks"] {
        server.query(&format!("SELECT count(*) FROM {table}")).expect(table);
    }

    server.query("INSERT INTO schema_migrations (version) VALUES (99)").expect("inserted");
    let error = history(server.port()).check().await.expect_err("too new").to_string();
    assert!(error.contains("later version (99, this one knows 1)"), "{error}");

    let missing = History::postgres(&options(server.port(), "nowhere")).expect("a history");
    let error = missing.check().await.expect_err("no such database").to_string();
    assert!(error.contains("database \"nowhere\" does not exist"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_somebody_else_are_left_alone() {
    let Some(server) = server() else { return };
    server.query("CREATE TABLE resources (theirs INT)").expect("created");
    let error = history(server.port()).check().await.expect_err("not ours");
    assert!(matches!(error, HistoryError::Foreign(_)), "{error}");
    assert!(error.to_string().contains("DB_NAME"), "{error}");
    let tables = server.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").expect("a count");
    assert_eq!(tables, "1", "nothing was made beside it");
}

/// Gives a server a certificate for 127.0.0.1 and lets it use it. Its files must be its own.
fn switch_tls_on(server: &Postgres, certificate: &str, key: &str) {
    let folder = server.query("SHOW data_directory").expect("a folder");
    for (name, pem) in [("server.crt", certificate), ("server.key", key)] {
        let lines = pem.trim();
        let copy = format!(
            "COPY (SELECT unnest(string_to_array('{lines}', E'\\n'))) TO PROGRAM 'umask 077; cat > {folder}/{name}'"
        );
        server.query(&copy).expect("written");
    }
    server.query("ALTER SYSTEM SET ssl = on").expect("a setting");
    server.query("SELECT pg_reload_conf()").expect("reloaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_is_encrypted_and_the_server_known_where_the_settings_say_so() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        std::fs::write(folder.path().join(name), pair.cert.pem()).expect("written");
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    };
    let ((certificate, key), _) = (made("trusted.pem"), made("other.pem"));
    let port = server.port().to_string();
    let open = |mode: &str, authority: Option<&str>| {
        let authority = authority.map(|name| folder.path().join(name).display().to_string());
        let get = |name: &str| match name {
            "DB_HOST" => Some("127.0.0.1".to_owned()),
            "DB_PORT" => Some(port.clone()),
            "DB_NAME" => Some("postgres".to_owned()),
            "DB_USER" => Some("steersman".to_owned()),
            "DB_SSLMODE" => Some(mode.to_owned()),
            "DB_SSLROOTCERT" => authority.clone(),
            _ => None,
        };
        let database = Environment::database(get).expect("settings").expect("a database");
        History::postgres(&database).expect("a history")
    };
    let error = open("require", None).check().await.expect_err("it speaks no TLS yet");
    assert!(matches!(error, HistoryError::Unreachable { .. }), "{error}");
    switch_tls_on(&server, &certificate, &key);
    let first = open("require", None);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = first.check().await {
        assert!(tokio::time::Instant::now() < deadline, "the server does not take its certificate: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(first);
    let ours =
        "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'steersman-infra'";
    let count =
        |condition: &str| server.query(&format!("SELECT count(*) {ours} AND {condition}")).expect("a count");
    for (mode, authority, encrypted) in [
        ("require", None, true),
        ("require", Some("trusted.pem"), true),
        ("verify-full", Some("trusted.pem"), true),
        ("disable", None, false),
    ] {
        let history = open(mode, authority);
        history.record(record(&format!("{mode}-{authority:?}"), 1)).await.expect(mode);
        let condition = if encrypted { "ssl" } else { "NOT ssl" };
        assert_ne!(count(condition), "0", "{mode} {authority:?}");
    }
    assert_eq!(server.query("SELECT count(*) FROM reconciliation_history").as_deref(), Ok("4"));
    for (mode, authority) in
        [("require", Some("other.pem")), ("verify-full", Some("other.pem")), ("verify-full", None)]
    {
        let error = open(mode, authority).check().await.expect_err("another authority").to_string();
        assert!(error.contains("certificate"), "{mode} {authority:?}: {error}");
    }
}

/// Stands before the server and lets connections through, or cuts them.
struct Gate {
    port: u16,
    open: Arc<AtomicBool>,
    cut: tokio::sync::watch::Sender<()>,
}

impl Gate {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let open = Arc::new(AtomicBool::new(true));
        let (cut, cuts) = tokio::sync::watch::channel(());
        let is_open = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut inward, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                tokio::spawn(async move {
                    let mut outward = TcpStream::connect(("127.0.0.1", server)).await.expect("the server");
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut inward, &mut outward) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { port, open, cut }
    }

    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        let _ = self.cut.send(());
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_costs_no_work_and_no_history() {
    let Some(server) = server() else { return };
    let gate = Gate::before(server.port()).await;
    let history = history(gate.port);
    let (cluster, world) = (cluster().await, World::default());
    let plugins = Registry::new().with(world.clone());
    let operator = operate(&cluster, plugins.clone(), &history);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (face, stop) = (RestOptions::new(plugins, history.clone()), CancellationToken::new());
    let face = tokio::spawn(rest(cluster.client(), face, listener, stop.clone()));

    box_type(&cluster).await;
    create_box(&cluster, "one", json!({})).await;
    let one = cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Ready).await;
    let path = format!("/api/v1/resources/{}/history", one.id().expect("an id"));
    assert_eq!(ask(&address, "GET", &path, None).await.0, 200);
    assert_eq!(ask(&address, "GET", "/health", None).await.0, 200);

    gate.close();
    let (code, answer) = ask(&address, "GET", &path, None).await;
    assert_eq!((code, &answer["detail"]), (503, &json!("the history cannot be read; try again later")));
    let (code, answer) = ask(&address, "GET", "/health", None).await;
    assert_eq!((code, &answer["detail"]), (503, &json!("the history cannot be reached")));
    create_box(&cluster, "two", json!({})).await;
    let two = cluster.wait_until::<Resource>("box.two", |it| it.state() == State::Ready).await;
    assert_eq!(world.lock().things.len(), 2, "resources are reconciled all the same");
    assert!(operator.metric("infra_history_waiting") >= 1.0);
    assert_eq!(ask(&address, "GET", "/api/v1/resources/1", None).await.0, 200);

    gate.open();
    cluster
        .wait_for("the entry that could not be written", || async {
            let entries = history.of(two.id()?, 10, None).await.ok()?;
            (entries.len() == 1 && entries[0].1.success).then_some(())
        })
        .await;
    cluster
        .wait_for("health", || async { (ask(&address, "GET", "/health", None).await.0 == 200).then_some(()) })
        .await;
    stop.cancel();
    face.await.expect("not cancelled").expect("ended well");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_find_types_resources_and_locks_in_the_database() {
    let Some(server) = server() else { return };
    let sees = |sql: &str, expected: &str| (server.query(sql).as_deref() == Ok(expected)).then_some(());
    // What was there before and has gone while nobody watched.
    history(server.port()).check().await.expect("tables");
    server
        .query(
            "INSERT INTO resources (namespace, object_name, name, resource_type_name, resource_type_version,
                action_plugin, spec, metadata, outputs, status, generation, observed_generation, retry_count)
             VALUES ('default', 'box.gone', 'gone', 'Box', 'v1', 'fake', '{}', '{}', '{}', 'ready', 1, 1, 0)",
        )
        .expect("inserted");
    let (cluster, world, history) = (cluster().await, World::default(), history(server.port()));
    world.lock().questions = 1000;
    world.lock().pause = Some(Duration::from_millis(50));
    let operator = operate(&cluster, Registry::new().with(world.clone()), &history);
    box_type(&cluster).await;
    create_box(&cluster, "one", json!({"size": 4})).await;
    cluster
        .wait_for("a lock", || async { sees("SELECT lock_name, phase FROM locks", "resource/1|applying") })
        .await;
    let attempt = server.query("SELECT holder FROM locks").expect("a holder");
    world.lock().questions = 0;
    cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Ready).await;
    let sql = "SELECT id, name, resource_type_name, spec, outputs, status, generation, observed_generation FROM resources";
    let row = r#"1|one|Box|{"size": 4}|{"size": 4}|ready|1|1"#;
    cluster.wait_for("the row", || async { sees(sql, row) }).await;
    assert_eq!(server.query("SELECT count(*) FROM locks").as_deref(), Ok("0"));
    let sql = "SELECT attempt, success, trigger_reason FROM reconciliation_history";
    assert_eq!(server.query(sql), Ok(format!("{attempt}|t|initial")));
    let sql = "SELECT id, name, version, status, schema->>'type' FROM resource_types";
    cluster.wait_for("the type", || async { sees(sql, "1|Box|v1|active|object") }).await;

    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    cluster.delete::<steersman_infra::ResourceType>("box.v1").await;
    let sql = "SELECT (SELECT count(*) FROM resources), (SELECT count(*) FROM resource_types)";
    cluster.wait_for("empty tables", || async { sees(sql, "0|0") }).await;
    assert_eq!(
        server.query("SELECT count(*) FROM reconciliation_history").as_deref(),
        Ok("2"),
        "history stays"
    );
    operator.stop().await;
}
