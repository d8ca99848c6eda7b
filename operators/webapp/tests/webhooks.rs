//! WebApps that are judged and completed before they are stored, in real time over HTTPS.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use steersman::webhook::{WebhookOptions, Webhooks};
use steersman_test::{Cluster, Running};
use steersman_webapp::{Latest, OPERATOR, Policy, WebApp, controller, crd, webhooks};

async fn cluster(policy: Policy) -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    cluster.install(&[crd()]).await;
    let options =
        WebhookOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..WebhookOptions::default() };
    let manager = cluster.manager(cluster.options(OPERATOR)).controller(controller());
    let running = cluster.run_manager(manager.webhooks(webhooks(Webhooks::new(options), policy)));
    cluster.wait_for_object::<ValidatingWebhookConfiguration>(OPERATOR).await;
    (cluster, running)
}

fn webapp(name: &str, spec: Value) -> WebApp {
    WebApp::new(name, serde_json::from_value(spec).expect("a spec"))
}

async fn refused(api: &Api<WebApp>, name: &str, spec: Value) -> String {
    match api.create(&PostParams::default(), &webapp(name, spec)).await {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn bad_webapps_are_refused_with_the_names_of_their_fields() {
    let (cluster, running) = cluster(Policy { latest: Latest::Refuse, ..Policy::default() }).await;
    let api: Api<WebApp> = Api::namespaced(cluster.client(), "default");
    let denied = "admission webhook \"validate.webapps.example.com\" denied the request: \
                  WebApp.example.com \"web\" is invalid: ";
    assert_eq!(
        refused(&api, "web", json!({"image": "nginx", "replicas": 2000, "port": 80})).await,
        format!(
            "{denied}[spec.image: Invalid value: \"nginx\": must say which version: a tag (nginx:1.0) or a digest \
             (nginx@sha256:…), spec.replicas: Invalid value: 2000: must be between 0 and 1000]"
        )
    );
    assert_eq!(
        refused(&api, "web", json!({"image": "nginx:latest", "replicas": 1, "port": 80})).await,
        format!(
            "{denied}spec.image: Invalid value: \"nginx:latest\": must not be tagged latest, which may be another \
             image tomorrow; name a version or a digest"
        )
    );
    let made = api
        .create(
            &PostParams::default(),
            &webapp("web", json!({"image": "nginx:1.25", "replicas": 1, "port": 80})),
        )
        .await
        .expect("it is fine");
    assert_eq!(made.labels()["app.kubernetes.io/name"], "web");
    assert_eq!(made.labels()["app.kubernetes.io/component"], "webapp");

    let headless = Patch::Merge(json!({"spec": {"service": {"headless": true}}}));
    let changed = api.patch("web", &PatchParams::default(), &headless).await;
    // The definition's own rules are asked first.
    let refused = changed.expect_err("the Service would have to be made again").to_string();
    assert!(refused.contains("spec.service.headless") && refused.contains("may not be changed"), "{refused}");
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    api.patch_scale("web", &PatchParams::default(), &two).await.expect("autoscalers are not asked");
    running.stop().await;
}
