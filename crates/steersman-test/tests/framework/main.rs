//! What a framework must get right, each as a test of its own. Several are defects that other
//! frameworks have.

mod managers;
mod reconciles;
mod watches;
mod writes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret, Service};
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steersman::{
    CancellationToken, Context, Controller, Error, EventType, Finalized, Key, LeaseOptions, ManagerError,
    MetadataEvent, Object, Options, Outcome, Predicate, Reconciler, Scope,
};
use steersman_test::Cluster;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A reconciler made of a function, that notes when it was called and for what.
struct Probe<F> {
    calls: Arc<Mutex<Vec<Call>>>,
    act: F,
}

#[derive(Clone, Debug)]
struct Call {
    key: String,
    reasons: String,
    at: Instant,
    gone: bool,
}

type Calls = Arc<Mutex<Vec<Call>>>;

impl<F> Reconciler for Probe<F>
where
    F: AsyncFnProbe,
{
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        self.note(cx, false);
        self.act.act(object, cx).await
    }

    async fn gone(&self, _: &Key, cx: &Context) -> Result<(), Error> {
        self.note(cx, true);
        Ok(())
    }
}

impl<F> Probe<F> {
    fn note(&self, cx: &Context, gone: bool) {
        self.calls.lock().expect("a lock").push(Call {
            key: cx.key().to_string(),
            reasons: cx.reasons().to_string(),
            at: Instant::now(),
            gone,
        });
    }
}

trait AsyncFnProbe: Send + Sync + 'static {
    fn act(
        &self,
        object: Arc<ConfigMap>,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// Does nothing.
struct Idle;

impl AsyncFnProbe for Idle {
    async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }
}

/// Declares a Secret of the same name.
struct MakeSecret;

impl AsyncFnProbe for MakeSecret {
    async fn act(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        cx.apply(&secret(cx.key().name(), config.data.clone().unwrap_or_default())).await?;
        Ok(Outcome::Done)
    }
}

fn secret(name: &str, data: BTreeMap<String, String>) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        data: Some(
            data.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes()))).collect(),
        ),
        ..Secret::default()
    }
}

fn probe<F: AsyncFnProbe>(act: F) -> (Controller<Probe<F>>, Calls) {
    let calls = Calls::default();
    let probe = Probe { calls: Arc::clone(&calls), act };
    (Controller::new("probe", probe), calls)
}

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}})
}

fn count(calls: &Calls, key: &str) -> usize {
    let calls = calls.lock().expect("a lock");
    calls.iter().filter(|call| call.key == key).count()
}

async fn called(cluster: &Cluster, calls: &Calls, key: &str, times: usize) {
    cluster
        .wait_for(&format!("reconcile {times} of {key}"), || async {
            (count(calls, key) >= times).then_some(())
        })
        .await;
}
