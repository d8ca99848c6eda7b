//! What a framework must get right, each as a test of its own.
//!
//! Several are defects that other frameworks have, and what their users complain of most:
//!
//! | complaint | tests |
//! |---|---|
//! | one failing watch starves the controller | `one_failing_watch_holds_up_nothing_else` |
//! | keys are served in no order | `keys_are_served_in_the_order_in_which_their_objects_came` |
//! | a shared subscriber loses its wake-up | `a_subscriber_that_has_not_looked_yet_misses_no_wake_up` |
//! | a relist drops deletes | `an_owned_object_that_goes_while_the_watch_is_down_brings_its_owner_back` |
//! | a panic kills the controller | `a_panic_is_caught_and_tried_again` |
//! | 410 at the start of a watch never relists | `a_version_that_is_too_old_leads_to_a_new_list` |
//! | shared dispatch ignores deletes | `every_controller_of_a_shared_cache_hears_of_a_deletion` |
//! | stale cache after an own write | `a_read_after_a_write_never_sees_the_older_object` |
//! | memory of whole-cluster caches | `reading_an_undeclared_kind_fails_and_writes_nothing`, [`caches`] |
//! | "object has been modified", fights over a status | `two_writers_of_one_status_do_not_fight` |
//! | which event was it, endless loops | `a_reconciler_is_told_why`, `nothing_is_done_while_nothing_happens` |
//! | the start starves new objects | `what_is_new_does_not_wait_for_what_was_there_at_the_start` |
//! | slow failover, unsafe leaders | [`managers`], and `leaders.rs` with real processes |
//! | one process, several clusters | `one_process_serves_two_clusters` |
//! | no tracing | `a_reconcile_is_a_span_with_its_reasons`, in `tracing.rs` |
//! | finalizer ergonomics | `an_object_goes_only_after_its_clean_up` |
//! | a dead watch that nobody notices | `a_watch_that_fell_silent_is_noticed_and_replaced` |
//! | back-off per object | `a_panic_is_caught_and_tried_again` and the tests of the queue |
//! | one undecodable object stops the watch | `an_object_that_does_not_fit_its_type_keeps_no_other_from_being_seen` |
//! | predicates lose deletes | `no_predicate_can_swallow_a_deletion` |
//! | silent errors of rights and missing kinds | `a_watch_that_is_refused_is_named_by_readiness` |
//! | unbounded concurrency | `no_more_reconciles_than_allowed_run_at_once` |
//! | owned deletes, confusing NotFound | `an_owner_hears_of_its_deleted_object_and_a_gone_object_is_no_error` |

mod admin;
mod caches;
mod dependents;
mod managers;
mod promises;
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
    CancellationToken, Context, Controller, Dependents, Error, EventType, Finalized, Key, LeaseOptions,
    ManagerError, MetadataEvent, Object, Options, Outcome, Predicate, Progress, Reconciler, Scope, Selection,
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
