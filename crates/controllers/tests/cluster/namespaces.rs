//! What comes with a namespace, and what goes with it.

use crate::{cluster, deployment, is_rolled_out, node};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn every_namespace_has_a_service_account_and_the_certificate() {
    let (cluster, _running) = cluster().await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "shop"}})).await;
    for namespace in ["default", "kube-system", "shop"] {
        cluster.wait_for_object::<ServiceAccount>(&format!("{namespace}/default")).await;
        let map = cluster.wait_for_object::<ConfigMap>(&format!("{namespace}/kube-root-ca.crt")).await;
        assert_eq!(map.data.map(|data| data["ca.crt"].clone()).as_deref(), Some("a certificate"));
    }
    cluster.delete::<ServiceAccount>("shop/default").await;
    cluster.delete::<ConfigMap>("shop/kube-root-ca.crt").await;
    cluster.wait_for_object::<ServiceAccount>("shop/default").await;
    cluster.wait_for_object::<ConfigMap>("shop/kube-root-ca.crt").await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_everything_in_it_along() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "shop"}})).await;
    let mut web = deployment("web", 2, "v1");
    web["metadata"]["namespace"] = "shop".into();
    cluster.create_json::<Deployment>(web).await;
    cluster.create_json::<Secret>(json!({"metadata": {"name": "s", "namespace": "shop"}})).await;
    cluster.wait_until::<Deployment>("shop/web", is_rolled_out).await;
    cluster.delete::<Namespace>("shop").await;
    cluster.wait_until_gone::<Namespace>("shop").await;
    assert!(cluster.list::<Pod>().await.is_empty());
    assert!(cluster.list::<Deployment>().await.is_empty());
    assert!(cluster.get::<Secret>("shop/s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_what_is_held_back_and_says_what_that_is() {
    let (cluster, _running) = cluster().await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "shop"}})).await;
    let held = json!({"metadata": {"name": "held", "namespace": "shop", "finalizers": ["example.com/hold"]}});
    cluster.create_json::<ConfigMap>(held).await;
    cluster.delete::<Namespace>("shop").await;
    let said = |namespace: &Namespace, kind: &str| {
        let conditions =
            namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let found = conditions.into_iter().find(|one| one.type_ == kind && one.status == "True");
        found.and_then(|found| found.message)
    };
    let namespace = cluster
        .wait_until::<Namespace>("shop", |namespace| {
            said(namespace, "NamespaceFinalizersRemaining").is_some()
        })
        .await;
    assert_eq!(
        said(&namespace, "NamespaceFinalizersRemaining").as_deref(),
        Some(
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
    );
    assert_eq!(
        said(&namespace, "NamespaceContentRemaining").as_deref(),
        Some("Some resources are remaining: configmaps. has 1 resource instances")
    );
    cluster.patch::<ConfigMap>("shop/held", json!({"metadata": {"finalizers": null}})).await;
    cluster.wait_until_gone::<Namespace>("shop").await;
}
