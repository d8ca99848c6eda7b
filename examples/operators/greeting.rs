//! The smallest whole operator: a kind of its own, an object it looks after, a status.
//!
//! ```console
//! $ steer up                                                            # or any cluster
//! $ cargo run --package steersman-examples --example greeting           # in a second terminal
//! $ kubectl apply --filename examples/operators/greeting.yaml           # in a third
//! $ kubectl get greetings
//! $ kubectl get configmap ada --output jsonpath='{.data.text}'
//! ```

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResource, CustomResourceExt as _, ResourceExt as _,
    api::{Patch, PatchParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steersman::{CancellationToken, Context, Controller, Error, Manager, Options, Outcome, Reconciler};

/// Whom to greet, and how.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "examples.steersman.io", version = "v1", kind = "Greeting", namespaced)]
#[kube(status = "GreetingStatus")]
#[kube(printcolumn = r#"{"name": "Text", "type": "string", "jsonPath": ".status.text"}"#)]
struct GreetingSpec {
    /// Who is greeted.
    name: String,
    /// The word of greeting.
    #[serde(default = "hello")]
    word: String,
}

fn hello() -> String {
    "Hello".to_owned()
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct GreetingStatus {
    /// The greeting in full.
    text: String,
}

/// Writes each greeting into a ConfigMap of the same name.
struct Greeter;

impl Reconciler for Greeter {
    type Object = Greeting;

    async fn reconcile(&self, greeting: Arc<Greeting>, cx: &Context) -> Result<Outcome, Error> {
        let text = format!("{}, {}!", greeting.spec.word, greeting.spec.name);
        let mut config =
            ConfigMap { data: Some([("text".to_owned(), text.clone())].into()), ..Default::default() };
        config.metadata.name = Some(greeting.name_any());
        config.metadata.namespace = greeting.namespace();
        cx.apply(&config).await?;
        cx.apply_status(&GreetingStatus { text }).await?;
        Ok(Outcome::Done)
    }
}

fn controller() -> Controller<Greeter> {
    Controller::new("greeting", Greeter).owns::<ConfigMap>()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let client = kube::Client::try_default().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("greeting").force();
    let definition = Greeting::crd();
    definitions.patch(&definition.name_any(), &params, &Patch::Apply(&definition)).await?;
    let manager = Manager::new(client, Options::named("greeting")).controller(controller());
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

    fn ada(spec: &Value) -> Value {
        json!({"apiVersion": "examples.steersman.io/v1", "kind": "Greeting", "metadata": {"name": "ada"}, "spec": spec})
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeting_is_written_down_kept_and_taken_away() {
        let cluster = Cluster::start().await;
        cluster.install([&Greeting::crd()]).await;
        let running = cluster.run(controller());
        cluster.create_json::<Greeting>(ada(&json!({"name": "Ada"}))).await;
        let greeted = |text: &'static str| {
            move |config: &ConfigMap| {
                config.data.as_ref().and_then(|data| data.get("text")).is_some_and(|it| it == text)
            }
        };
        cluster.wait_until("ada", greeted("Hello, Ada!")).await;

        cluster.patch::<ConfigMap>("ada", json!({"data": {"text": "Go away"}})).await;
        cluster.wait_until("ada", greeted("Hello, Ada!")).await;

        cluster.patch::<Greeting>("ada", json!({"spec": {"word": "Good morning"}})).await;
        cluster.wait_until("ada", greeted("Good morning, Ada!")).await;
        cluster
            .wait_until::<Greeting>("ada", |greeting| {
                greeting.status.as_ref().is_some_and(|status| status.text == "Good morning, Ada!")
            })
            .await;

        cluster.converge().await;
        running.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_after_any_write_changes_nothing_in_the_end() {
        for writes in 0..2 {
            let cluster = Cluster::start().await;
            cluster.install([&Greeting::crd()]).await;
            cluster.create_json::<Greeting>(ada(&json!({"name": "Ada"}))).await;
            cluster.faults().crash_after(writes);
            let running = cluster.run(controller());
            cluster.faults().crashed().await;
            running.kill().await;
            cluster.faults().clear();
            let running = cluster.run(controller());
            cluster
                .wait_until::<Greeting>("ada", |greeting| {
                    greeting.status.as_ref().is_some_and(|status| status.text == "Hello, Ada!")
                })
                .await;
            cluster.converge().await;
            running.stop().await;
        }
    }
}
