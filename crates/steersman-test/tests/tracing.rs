//! What an operator says in its logs. Alone in its process: who listens is decided once for all threads.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use serde_json::json;
use steersman::{Context, Controller, Error, Outcome, Reconciler};
use steersman_test::Cluster;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("a lock")).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Copies a ConfigMap into a Secret, says so, and fails.
struct Talks;

impl Reconciler for Talks {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        tracing::info!("looking at it");
        let data = config.data.clone().unwrap_or_default();
        let mut secret = Secret {
            data: Some(data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect()),
            ..Secret::default()
        };
        secret.metadata.name = Some(cx.key().name().to_owned());
        cx.apply(&secret).await?;
        Err(Error::msg("not today"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_a_span_with_its_reasons() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("the first");
    let cluster = Cluster::start().await;
    let running = cluster.run(Controller::new("probe", Talks).owns::<Secret>());
    cluster
        .create_json::<ConfigMap>(json!({"metadata": {"name": "a"}, "data": {"password": "correct-horse"}}))
        .await;
    let line = |what: &str| {
        let found = |line: &&str| {
            line.contains(what) && line.contains("reconcile{") && line.contains("key=default/a")
        };
        lines.text().lines().find(found).map(str::to_owned)
    };
    for what in ["looking at it", "reconcile failed, trying again"] {
        let line = cluster.wait_for(what, || async { line(what) }).await;
        assert!(line.contains("controller=probe key=default/a id="), "{line}");
        assert!(line.contains("reasons=created"), "{line}");
    }
    // What is in Secrets is never said, at whatever level.
    let text = lines.text();
    for line in text.lines().filter(|line| line.contains("steersman")) {
        assert!(!line.contains("correct-horse") && !line.contains("Y29ycmVjdC1ob3JzZQ"), "{line}");
    }
    drop(running);
}
