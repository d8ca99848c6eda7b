//! A thousand objects in bad weather: everything converges once it clears up, and then nothing
//! is written any more.
//!
//! Time is virtual: a round is ten minutes of storm and an hour of silence, and takes seconds.
//! `SOAK_SECONDS` says for how long rounds are begun, with other seeds each (at least one is),
//! `SOAK_SEED` with which seed to start.
#![allow(clippy::print_stdout, reason = "the seed, to try it again")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use steersman::{Context, Controller, Error, Finalized, Outcome, Reconciler};
use steersman_test::{Cluster, Storm};

const OBJECTS: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Gives every ConfigMap with the label `copy` a Secret with the same data, and takes it away
/// with the ConfigMap.
struct Copies;

fn copy(config: &ConfigMap) -> Secret {
    let data = config.data.clone().unwrap_or_default();
    Secret {
        metadata: ObjectMeta { name: config.metadata.name.clone(), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        data: Some(
            data.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes()))).collect(),
        ),
        ..Secret::default()
    }
}

impl Reconciler for Copies {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        cx.apply(&copy(&config)).await?;
        Ok(Outcome::Done)
    }

    async fn finalize(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Finalized, Error> {
        // Not by what the cache knows: the answer to a write may have been lost, and the watch
        // may be late. Elsewhere the garbage collector would do this.
        let secrets: Api<Secret> = Api::namespaced(cx.client().clone(), "default");
        match secrets.delete(cx.key().name(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Finalized::Done),
            deleted => deleted.map(|_| Finalized::Done).map_err(Error::from),
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_everything_converges_and_then_nothing_is_written() {
    let began = std::time::Instant::now();
    let patience = Duration::from_secs(number("SOAK_SECONDS", 0));
    let mut seed = number("SOAK_SEED", 1);
    loop {
        let (reconciles, writes) = round(seed).await;
        println!(
            "seed {seed}: {reconciles} reconciles, {writes} writes, {:.0} s since the start",
            began.elapsed().as_secs_f64()
        );
        if began.elapsed() >= patience {
            return;
        }
        seed += 1;
    }
}

/// One storm and the calm after it.
async fn round(seed: u64) -> (f64, u64) {
    let cluster = Cluster::start().await;
    // The one that every namespace has gets a copy as well; it stays.
    let controller = || {
        Controller::new("copies", Copies)
            .owns::<Secret>()
            .finalizer("copies.example.com/clean-up")
            .concurrency(16)
    };
    let mut rng = SmallRng::seed_from_u64(seed);
    cluster.faults().storm(Storm::seeded(seed));
    let mut running = cluster.run(controller());
    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    for index in 0..OBJECTS {
        let object = ConfigMap {
            metadata: ObjectMeta { name: Some(format!("c{index:04}")), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("round".to_owned(), "0".to_owned())])),
            ..ConfigMap::default()
        };
        configs.create(&PostParams::default(), &object).await.expect("created");
    }
    // Ten minutes in which people, and those who interfere, change things.
    for step in 0..600 {
        let name = format!("c{:04}", rng.random_range(0..OBJECTS));
        let merge = PatchParams::default();
        // What is not there (any more) cannot be changed: that is all that may go wrong.
        match rng.random_range(0..10) {
            0 => drop(configs.delete(&name, &DeleteParams::default()).await),
            1 => drop(secrets.delete(&name, &DeleteParams::default()).await),
            2 | 3 => {
                let patch = json!({"data": {"round": "ZHJpZnQ="}});
                drop(secrets.patch(&name, &merge, &Patch::Merge(&patch)).await);
            }
            4 if step % 100 == 0 => {
                running.kill().await;
                running = cluster.run(controller());
            }
            _ => {
                let patch = json!({"data": {"round": step.to_string(), "more": name}});
                drop(configs.patch(&name, &merge, &Patch::Merge(&patch)).await);
            }
        }
        cluster.pass(SECOND).await;
    }
    cluster.faults().clear();
    // As long as the longest back-off, which what failed all the time has reached.
    cluster.pass(400 * SECOND).await;
    cluster.converge().await;
    let deleting: Vec<String> = cluster
        .list::<ConfigMap>()
        .await
        .iter()
        .filter(|config| config.metadata.deletion_timestamp.is_some())
        .map(ResourceExt::name_any)
        .collect();
    assert!(deleting.is_empty(), "seed {seed}: clean-ups are stuck: {deleting:?}");
    let wanted: BTreeMap<String, _> = cluster
        .list::<ConfigMap>()
        .await
        .iter()
        .map(|config| (config.name_any(), copy(config).data.unwrap_or_default()))
        .collect();
    let found: BTreeMap<String, _> = cluster
        .list::<Secret>()
        .await
        .into_iter()
        .map(|secret| (secret.name_any(), secret.data.unwrap_or_default()))
        .collect();
    assert_eq!(found, wanted, "seed {seed}");
    cluster.assert_silent(3600 * SECOND).await;
    let reconciles = running.metric("controller_runtime_reconcile_total{");
    running.stop().await;
    (reconciles, cluster.faults().writes())
}
