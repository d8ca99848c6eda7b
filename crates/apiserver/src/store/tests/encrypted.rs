//! Connections to a PostgreSQL that speaks TLS.

use rcgen::{CertificateParams, KeyPair};
use xtask::parts;

use super::home::connect;
use super::*;

/// Gives a server a certificate for 127.0.0.1 and lets it use it. Its files must be its own.
async fn switch_tls_on(url: &str, certificate: &str, key: &str) {
    let client = connect(url).await;
    let folder: String = client.query_one("SHOW data_directory", &[]).await.expect("a folder").get(0);
    for (name, pem) in [("server.crt", certificate), ("server.key", key)] {
        let copy = format!(
            "COPY (SELECT unnest(string_to_array('{}', E'\\n'))) TO PROGRAM 'umask 077; cat > {folder}/{name}'",
            pem.trim()
        );
        client.batch_execute(&copy).await.expect("writes");
    }
    client.batch_execute("ALTER SYSTEM SET ssl = on").await.expect("a setting");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloads");
    until("the server takes its certificate", async || {
        let client = connect(url).await;
        client.query_one("SHOW ssl", &[]).await.expect("a setting").get::<_, String>(0) == "on"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_the_server_is_checked_where_the_address_says_so() {
    let found = tokio::task::spawn_blocking(|| parts::or_skip(parts::postgres())).await;
    let Some(server) = found.expect("no panic") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        let file = folder.path().join(name);
        std::fs::write(&file, &certificate).expect("writable");
        (certificate, key.serialize_pem(), file.display().to_string())
    };
    let ((certificate, key, trusted), (_, _, other)) = (made("trusted.pem"), made("other.pem"));
    let url = server.url();
    let refused = Store::postgres(&format!("{url}?sslmode=require"), StoreOptions::default()).await;
    let refused = refused.expect_err("it speaks no TLS yet").to_string();
    assert!(refused.starts_with("cannot reach PostgreSQL at "), "{refused}");
    switch_tls_on(&url, &certificate, &key).await;

    for mode in [format!("verify-full&sslrootcert={trusted}"), "require".to_owned(), "prefer".to_owned()] {
        let store = Store::postgres(&format!("{url}?sslmode={mode}"), StoreOptions::default()).await;
        let store = store.unwrap_or_else(|error| panic!("{mode}: {error}"));
        let name = mode.chars().take_while(char::is_ascii_lowercase).collect::<String>();
        create(&store, &pod(&name), "1").await.expect("creates");
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                         WHERE ssl AND application_name = 'steersman'";
        let count: i64 = connect(&url).await.query_one(encrypted, &[]).await.expect("a count").get(0);
        assert!(count >= 1, "{mode}");
        store.close().await.expect("closes");
    }
    let wrong = format!("{url}?sslmode=verify-full&sslrootcert={other}");
    let error = Store::postgres(&wrong, StoreOptions::default()).await.expect_err("another certificate");
    assert!(error.to_string().contains("certificate"), "{error}");
}
