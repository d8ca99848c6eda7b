//! Settings that several namespaces share: watching a second kind, writing across namespaces, and
//! a finalizer, since no owner reference reaches from one namespace into another.
//!
//! ```console
//! $ cargo run --package steersman-examples --example mirror
//! $ kubectl apply --filename examples/operators/mirror.yaml
//! $ kubectl create namespace team-b
//! $ kubectl get configmaps --all-namespaces --selector examples.steersman.io/mirror
//! ```

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResource, CustomResourceExt as _, ResourceExt as _,
    api::{Patch, PatchParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steersman::{
    Cache, CancellationToken, Context, Controller, Error, Finalized, Key, Manager, Options, Outcome,
    Reconciler,
};

/// On every copy: the mirror that it belongs to, as `namespace.name`.
const LABEL: &str = "examples.steersman.io/mirror";

/// Which settings are copied, and where to.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "examples.steersman.io", version = "v1", kind = "Mirror", namespaced)]
struct MirrorSpec {
    /// The settings.
    data: BTreeMap<String, String>,
    /// The namespaces that get a ConfigMap with them, now or as soon as they are there.
    namespaces: Vec<String>,
}

/// Keeps the copies of each mirror as it says.
struct Mirrors;

impl Reconciler for Mirrors {
    type Object = Mirror;

    async fn reconcile(&self, mirror: Arc<Mirror>, cx: &Context) -> Result<Outcome, Error> {
        let there = |name: &&String| cx.cache::<Namespace>().get(&Key::cluster(name.as_str())).is_some();
        for namespace in mirror.spec.namespaces.iter().filter(there) {
            // Nobody owns it: an owner in one namespace cannot own what is in another.
            cx.apply_unowned(&copy(&mirror, namespace)).await?;
        }
        for copy in copies(&mirror, cx) {
            if !copy.namespace().is_some_and(|namespace| mirror.spec.namespaces.contains(&namespace)) {
                cx.delete(&*copy).await?;
            }
        }
        Ok(Outcome::Done)
    }

    async fn finalize(&self, mirror: Arc<Mirror>, cx: &Context) -> Result<Finalized, Error> {
        for copy in copies(&mirror, cx) {
            cx.delete(&*copy).await?;
        }
        Ok(Finalized::Done)
    }
}

fn copy(mirror: &Mirror, namespace: &str) -> ConfigMap {
    let mut copy = ConfigMap { data: Some(mirror.spec.data.clone()), ..ConfigMap::default() };
    copy.metadata.name = Some(mirror.name_any());
    copy.metadata.namespace = Some(namespace.to_owned());
    copy.metadata.labels = Some([(LABEL.to_owned(), label(mirror))].into());
    copy
}

fn copies(mirror: &Mirror, cx: &Context) -> Vec<Arc<ConfigMap>> {
    cx.cache::<ConfigMap>().by_index("mirror", &label(mirror))
}

fn label(mirror: &Mirror) -> String {
    format!("{}.{}", mirror.namespace().unwrap_or_default(), mirror.name_any())
}

fn controller() -> Controller<Mirrors> {
    Controller::new("mirror", Mirrors)
        .finalizer("examples.steersman.io/mirror")
        .index::<ConfigMap>("mirror", |config| config.labels().get(LABEL).cloned().into_iter().collect())
        // A copy that somebody changed or deleted concerns the mirror that it names …
        .watches::<ConfigMap>(|config, _| {
            let label = config.labels().get(LABEL).and_then(|label| label.split_once('.'));
            label.map(|(namespace, name)| Key::new(namespace, name)).into_iter().collect()
        })
        // … and a new namespace every mirror that waits for it.
        .watches::<Namespace>(|namespace, cache: &Cache| {
            let name = namespace.name_any();
            let waiting = |mirror: &Arc<Mirror>| mirror.spec.namespaces.contains(&name);
            cache
                .view::<Mirror>()
                .list()
                .iter()
                .filter(|mirror| waiting(mirror))
                .map(|it| Key::of(&**it))
                .collect()
        })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let client = kube::Client::try_default().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("mirror").force();
    let definition = Mirror::crd();
    definitions.patch(&definition.name_any(), &params, &Patch::Apply(&definition)).await?;
    let manager = Manager::new(client, Options::named("mirror")).controller(controller());
    tokio::select! {
        ended = manager.run(CancellationToken::new()) => Ok(ended?),
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steersman_test::Cluster;

    fn mirror(namespaces: &Value) -> Value {
        json!({"apiVersion": "examples.steersman.io/v1", "kind": "Mirror", "metadata": {"name": "house"},
               "spec": {"data": {"colour": "blue"}, "namespaces": namespaces}})
    }

    fn blue(config: &ConfigMap) -> bool {
        config.data.as_ref().and_then(|data| data.get("colour")).is_some_and(|colour| colour == "blue")
    }

    #[tokio::test(start_paused = true)]
    async fn copies_come_with_their_namespaces_and_go_with_their_mirror() {
        let cluster = Cluster::start().await;
        cluster.install([&Mirror::crd()]).await;
        let running = cluster.run(controller());
        cluster.create_json::<Namespace>(json!({"metadata": {"name": "team-a"}})).await;
        cluster.create_json::<Mirror>(mirror(&json!(["team-a", "team-b"]))).await;
        cluster.wait_until("team-a/house", blue).await;

        cluster.create_json::<Namespace>(json!({"metadata": {"name": "team-b"}})).await;
        cluster.wait_until("team-b/house", blue).await;

        cluster.delete::<ConfigMap>("team-a/house").await;
        cluster.wait_until("team-a/house", blue).await;

        cluster.patch::<Mirror>("house", json!({"spec": {"namespaces": ["team-b"]}})).await;
        cluster.wait_until_gone::<ConfigMap>("team-a/house").await;

        cluster.delete::<Mirror>("house").await;
        cluster.wait_until_gone::<Mirror>("house").await;
        assert!(cluster.get::<ConfigMap>("team-b/house").await.is_none(), "a copy is left behind");
        cluster.converge().await;
        running.stop().await;
    }
}
