//! Objects that come up one after the other, and go down the other way.

use super::*;

/// A Secret, then a Service once the Secret says that it is ready, then another Secret.
struct Chain;

fn service() -> Service {
    serde_json::from_value(json!({"metadata": {"name": "second"}, "spec": {"ports": [{"port": 80}]}}))
        .expect("a Service")
}

fn chain(cx: &Context) -> Dependents<'_> {
    Dependents::new(cx)
        .object_ready_when(secret("first", BTreeMap::new()), |live| {
            live.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("ready"))
        })
        .object(service())
        .object(secret("third", BTreeMap::new()))
}

impl Reconciler for Chain {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        let mut dependents = chain(cx);
        if object.data.as_ref().is_some_and(|data| data.contains_key("more")) {
            dependents = dependents.object(secret("fourth", BTreeMap::new()));
        }
        let progress = dependents.apply().await?;
        if let Progress::Waiting { on } = progress {
            cx.event(EventType::Normal, "Waiting", on);
        }
        Ok(Outcome::Done)
    }

    async fn finalize(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Finalized, Error> {
        match chain(cx).delete().await? {
            Progress::Complete => Ok(Finalized::Done),
            Progress::Waiting { .. } => Ok(Finalized::Pending(10 * SECOND)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_come_up_in_order_and_go_down_in_reverse() {
    let cluster = Cluster::start().await;
    let before = cluster.inventory().await;
    let controller = Controller::new("chain", Chain)
        .owns::<Secret>()
        .owns::<Service>()
        .finalizer("chain.example.com/clean-up");
    let _running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "a"}, "data": {"more": "yes"}})).await;
    cluster.wait_for_object::<Secret>("first").await;
    cluster
        .wait_for("an event that says so", || async {
            let events = cluster.list::<Event>().await;
            events.into_iter().find(|event| event.message.as_deref() == Some("Secret default/first"))
        })
        .await;
    cluster.converge().await;
    assert!(cluster.get::<Service>("second").await.is_none(), "the first is not ready");
    cluster.patch::<Secret>("first", json!({"metadata": {"labels": {"ready": "yes"}}})).await;
    cluster.wait_for_object::<Secret>("fourth").await;
    // While something is waited for, what comes later is not taken for pruned.
    cluster.patch::<Secret>("first", json!({"metadata": {"labels": {"ready": null}}})).await;
    cluster.converge().await;
    assert!(cluster.get::<Secret>("third").await.is_some());
    // What is no longer among them goes.
    cluster.patch::<ConfigMap>("a", json!({"data": null})).await;
    cluster.wait_until_gone::<Secret>("fourth").await;
    assert!(cluster.get::<Secret>("third").await.is_some());
    // The last one holds on: those before it stay.
    cluster.patch::<Secret>("third", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    cluster.delete::<ConfigMap>("a").await;
    cluster.wait_until::<Secret>("third", |third| third.metadata.deletion_timestamp.is_some()).await;
    cluster.converge().await;
    assert!(cluster.get::<Service>("second").await.is_some());
    assert!(cluster.get::<Secret>("first").await.is_some());
    cluster.patch::<Secret>("third", json!({"metadata": {"finalizers": null}})).await;
    cluster.wait_until_gone::<ConfigMap>("a").await;
    cluster.assert_nothing_left(&before).await;
}
