//! WebApps of an old release, upgraded: on our API server and on a real one.
//!
//! The old release knew `v1beta1` alone. The new one stores `v1`, and its operator converts.

use std::{future::Future, net::SocketAddr, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use steersman::{
    CancellationToken, Manager,
    convert::{Migration, migrate},
    webhook::{WebhookOptions, Webhooks},
};
use steersman_webapp::{OPERATOR, Policy, WebApp, crd, v1beta1};

const NAME: &str = "webapps.example.com";

/// Waits for something, with patience for a loaded machine.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The definition of the old release.
fn old() -> CustomResourceDefinition {
    v1beta1::WebApp::crd()
}

fn first(name: &str, spec: Value) -> v1beta1::WebApp {
    v1beta1::WebApp::new(name, serde_json::from_value(spec).unwrap())
}

fn plain<K: serde::Serialize>(object: &K) -> Value {
    serde_json::to_value(object).unwrap()
}

async fn apply(client: &Client, definition: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.patch(NAME, &PatchParams::apply("release").force(), &Patch::Apply(definition)).await.unwrap();
}

/// Lives through an upgrade and tells what it saw.
pub(crate) async fn upgrade(client: Client) -> Vec<Value> {
    let mut seen = Vec::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let beta: Api<v1beta1::WebApp> = Api::namespaced(client.clone(), "default");
    let hub: Api<WebApp> = Api::namespaced(client.clone(), "default");

    // The old release.
    apply(&client, &old()).await;
    for number in 0..5 {
        let spec =
            json!({"image": {"repository": "shop", "tag": number.to_string()}, "size": 0, "env": {"A": "1"}});
        let name = format!("old-{number}");
        eventually("the old release serves v1beta1", || async {
            beta.create(&PostParams::default(), &first(&name, spec.clone())).await.ok()
        })
        .await;
    }

    // The new one.
    apply(&client, &crd()).await;
    let stop = CancellationToken::new();
    let options =
        WebhookOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..WebhookOptions::default() };
    let webhooks = steersman_webapp::webhooks(Webhooks::new(options), Policy::default());
    let manager = Manager::new(client.clone(), steersman::Options::named(OPERATOR))
        .controller(steersman_webapp::controller())
        .webhooks(webhooks);
    let running = tokio::spawn(manager.run(stop.clone()));
    eventually("the operator registers itself", || async {
        let found = definitions.get(NAME).await.ok()?;
        let served = found.spec.versions.iter().all(|version| version.served);
        (served && found.spec.conversion?.strategy == "Webhook").then_some(())
    })
    .await;
    let web = eventually("what the old release stored is read as v1", || async {
        hub.get("old-3").await.ok().filter(|web| web.spec.image == "shop:3")
    })
    .await;
    seen.push(json!(["old", web.spec.replicas, plain(&web.spec.env)]));

    // Both versions are the same objects, and neither forgets what the other cannot say.
    let spec = json!({
        "image": "shop:9", "replicas": 0, "port": 8080, "podTemplate": {"metadata": {"labels": {"tier": "web"}}},
        "env": [{"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    });
    let made = WebApp::new("new", serde_json::from_value(spec.clone()).unwrap());
    eventually("the webhooks answer", || async { hub.create(&PostParams::default(), &made).await.ok() })
        .await;
    let shown = eventually("v1beta1 is served again", || async { beta.get("new").await.ok() }).await;
    seen.push(plain(&shown.spec));
    let bigger = Patch::Merge(json!({"spec": {"image": {"tag": "10"}}}));
    beta.patch("new", &PatchParams::default(), &bigger).await.unwrap();
    let kept = hub.get("new").await.unwrap();
    assert_eq!(kept.spec.image, "shop:10");
    assert!(!kept.annotations().contains_key("conversion.steersman.io/hub"), "{:?}", kept.annotations());
    seen.push(plain(&kept.spec));
    let odd = first("odd", json!({"image": {"repository": "a:1", "tag": "2"}}));
    match beta.create(&PostParams::default(), &odd).await {
        Err(kube::Error::Api(status)) => seen.push(json!([status.code, status.message])),
        other => panic!("an image with two tags is made: {other:?}"),
    }

    // Everything is stored as v1, and v1beta1 may go.
    let before = definitions.get(NAME).await.unwrap();
    assert_eq!(before.status.unwrap().stored_versions, Some(vec!["v1beta1".to_owned(), "v1".to_owned()]));
    let migration = migrate(&client, NAME).await.unwrap();
    assert_eq!(migration, Migration { rewritten: 6, retired: vec!["v1beta1".to_owned()] });
    let after = definitions.get(NAME).await.unwrap();
    assert_eq!(after.status.unwrap().stored_versions, Some(vec!["v1".to_owned()]));
    assert_eq!(migrate(&client, NAME).await.unwrap(), Migration::default(), "there is nothing left to do");
    stop.cancel();
    running.await.unwrap().unwrap();
    let mut next = definitions.get(NAME).await.unwrap();
    next.spec.versions.retain(|version| version.name == "v1");
    next.spec.conversion = None;
    definitions.replace(NAME, &PostParams::default(), &next).await.unwrap();
    let left = eventually("v1 is served without any webhook", || async {
        let list = hub.list(&ListParams::default()).await.ok()?;
        (list.items.len() == 6).then_some(list.items)
    })
    .await;
    seen.extend(left.iter().map(|web| json!([web.name_any(), web.spec.image])));
    seen
}
