//! Garbage collection by owner.

use crate::{cluster, deployment, is_rolled_out, node};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::Object;
use steersman_test::Cluster;

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true})
}

async fn config(cluster: &Cluster, name: &str, owners: &[Value]) -> String {
    let object = json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}});
    cluster.create_json::<ConfigMap>(object).await.uid().unwrap_or_default()
}

async fn delete<K>(cluster: &Cluster, name: &str, policy: PropagationPolicy)
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(cluster.client(), "default");
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    api.delete(name, &params).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_owner_takes_its_dependents_and_theirs_with_it() {
    let (cluster, _running) = cluster().await;
    let owner = config(&cluster, "owner", &[]).await;
    let child = config(&cluster, "child", &[reference("ConfigMap", "owner", &owner)]).await;
    config(&cluster, "grandchild", &[reference("ConfigMap", "child", &child)]).await;
    config(&cluster, "stranger", &[]).await;
    cluster.pass(Duration::from_secs(5)).await;
    cluster.delete::<ConfigMap>("owner").await;
    cluster.wait_until_gone::<ConfigMap>("grandchild").await;
    assert!(cluster.get::<ConfigMap>("child").await.is_none());
    assert!(cluster.get::<ConfigMap>("stranger").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_and_one_whose_name_was_used_again_count_as_gone() {
    let (cluster, _running) = cluster().await;
    config(&cluster, "absent", &[reference("ConfigMap", "never", "no-such-uid")]).await;
    config(&cluster, "reused", &[]).await;
    config(&cluster, "mismatch", &[reference("ConfigMap", "reused", "another-uid")]).await;
    cluster.wait_until_gone::<ConfigMap>("absent").await;
    cluster.wait_until_gone::<ConfigMap>("mismatch").await;
    assert!(cluster.get::<ConfigMap>("reused").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none_and_one_without_namespace_is_one() {
    let (cluster, _running) = cluster().await;
    let other = cluster.create_json::<Namespace>(json!({"metadata": {"name": "other"}})).await;
    let far = cluster
        .create_json::<ConfigMap>(json!({"metadata": {"name": "far", "namespace": "other"}}))
        .await
        .uid()
        .unwrap_or_default();
    config(&cluster, "wrong", &[reference("ConfigMap", "far", &far)]).await;
    config(&cluster, "right", &[reference("Namespace", "other", &other.uid().unwrap_or_default())]).await;
    cluster.wait_until_gone::<ConfigMap>("wrong").await;
    cluster.pass(Duration::from_secs(5)).await;
    assert!(cluster.get::<ConfigMap>("right").await.is_some());
    assert!(cluster.get::<ConfigMap>("other/far").await.is_some());
    cluster.delete::<Namespace>("other").await;
    cluster.wait_until_gone::<ConfigMap>("right").await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_owners_is_enough_to_live() {
    let (cluster, _running) = cluster().await;
    let first = config(&cluster, "first", &[]).await;
    let second = config(&cluster, "second", &[]).await;
    let owners = [reference("ConfigMap", "first", &first), reference("ConfigMap", "second", &second)];
    config(&cluster, "child", &owners).await;
    cluster.delete::<ConfigMap>("first").await;
    let child = cluster.wait_until::<ConfigMap>("child", |child| child.owner_references().len() == 1).await;
    assert_eq!(child.owner_references()[0].name, "second");
    cluster.delete::<ConfigMap>("second").await;
    cluster.wait_until_gone::<ConfigMap>("child").await;
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_the_reference_and_stay() {
    let (cluster, _running) = cluster().await;
    let owner = config(&cluster, "owner", &[]).await;
    config(&cluster, "child", &[reference("ConfigMap", "owner", &owner)]).await;
    delete::<ConfigMap>(&cluster, "owner", PropagationPolicy::Orphan).await;
    cluster.wait_until_gone::<ConfigMap>("owner").await;
    cluster.pass(Duration::from_secs(5)).await;
    let child = cluster.get::<ConfigMap>("child").await.expect("the child stays");
    assert!(child.owner_references().is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_foreground_the_owner_goes_last() {
    let (cluster, _running) = cluster().await;
    let owner = config(&cluster, "owner", &[]).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"],
        "ownerReferences": [reference("ConfigMap", "owner", &owner)]}});
    cluster.create_json::<ConfigMap>(held).await;
    config(&cluster, "child", &[reference("ConfigMap", "owner", &owner)]).await;
    delete::<ConfigMap>(&cluster, "owner", PropagationPolicy::Foreground).await;
    cluster.wait_until_gone::<ConfigMap>("child").await;
    cluster.pass(Duration::from_secs(5)).await;
    assert!(cluster.get::<ConfigMap>("owner").await.is_some(), "one that blocks is still there");
    cluster.patch::<ConfigMap>("held", json!({"metadata": {"finalizers": null}})).await;
    cluster.wait_until_gone::<ConfigMap>("owner").await;
    assert!(cluster.get::<ConfigMap>("held").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deployment_goes_in_every_way() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground, PropagationPolicy::Orphan] {
        let (cluster, _running) = cluster().await;
        node(&cluster, "n1").await;
        cluster.create_json::<Deployment>(deployment("web", 2, "v1")).await;
        cluster.wait_until::<Deployment>("web", is_rolled_out).await;
        delete::<Deployment>(&cluster, "web", policy.clone()).await;
        cluster.wait_until_gone::<Deployment>("web").await;
        if policy == PropagationPolicy::Orphan {
            cluster.pass(Duration::from_secs(5)).await;
            assert_eq!(cluster.list::<Pod>().await.len(), 2);
            cluster.create_json::<Deployment>(deployment("web", 2, "v1")).await;
            cluster.wait_until::<Deployment>("web", is_rolled_out).await;
            assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1, "the orphan was adopted");
        } else {
            cluster
                .wait_for("no pods", || async { cluster.list::<Pod>().await.is_empty().then_some(()) })
                .await;
            assert!(cluster.list::<ReplicaSet>().await.is_empty());
        }
    }
}

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

async fn define_widgets(cluster: &Cluster) {
    cluster
        .create_json::<CustomResourceDefinition>(json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}
        }))
        .await;
    cluster
        .wait_until::<CustomResourceDefinition>("widgets.example.com", |crd| {
            let conditions =
                crd.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
}

async fn widget(cluster: &Cluster, name: &str) -> String {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "default", &widgets());
    let widget = DynamicObject::new(name, &widgets());
    api.create(&Default::default(), &widget).await.expect("a widget").uid().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn custom_resources_own_as_soon_as_they_are_defined() {
    let (cluster, _running) = cluster().await;
    define_widgets(&cluster).await;
    let uid = widget(&cluster, "w").await;
    let mut owner = reference("Widget", "w", &uid);
    owner["apiVersion"] = "example.com/v1".into();
    config(&cluster, "child", &[owner]).await;
    cluster.pass(Duration::from_secs(5)).await;
    assert!(cluster.get::<ConfigMap>("child").await.is_some());
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "default", &widgets());
    api.delete("w", &Default::default()).await.expect("deleted");
    cluster.wait_until_gone::<ConfigMap>("child").await;
}

#[tokio::test(start_paused = true)]
async fn dependents_of_custom_resources_go_with_their_definition() {
    let (cluster, _running) = cluster().await;
    define_widgets(&cluster).await;
    let uid = widget(&cluster, "w").await;
    let mut owner = reference("Widget", "w", &uid);
    owner["apiVersion"] = "example.com/v1".into();
    config(&cluster, "child", &[owner]).await;
    cluster.pass(Duration::from_secs(5)).await;
    cluster.delete::<CustomResourceDefinition>("widgets.example.com").await;
    cluster.wait_until_gone::<ConfigMap>("child").await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_nobody_looked_is_made_up_for() {
    let cluster = Cluster::start().await;
    let owner = config(&cluster, "owner", &[]).await;
    let child =
        json!({"metadata": {"name": "child", "ownerReferences": [reference("ConfigMap", "owner", &owner)]}});
    cluster.create_json::<Secret>(child).await;
    cluster.delete::<ConfigMap>("owner").await;
    let _running = crate::run(&cluster);
    cluster.wait_until_gone::<Secret>("child").await;
}
