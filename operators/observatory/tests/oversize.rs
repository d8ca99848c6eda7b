//! Workflows whose status is more than the server takes.

mod support;

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use steersman::Manager;
use steersman_observatory::{Observatory, Phase, cli, controllers};
use steersman_test::{Cluster, Running};
use support::*;
use tower::{BoxError, service_fn};

/// A client of a server that takes no patch larger than so many bytes.
fn client_of_small_server(client: &Client, most: u64) -> Client {
    let client = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let size = request.body().size_hint().lower();
            if *request.method() != Method::PATCH || size <= most {
                return client.send(request).await.map_err(BoxError::from);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "reason": "InternalError", "message": "etcdserver: request is too large",
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            Ok(response)
        }
    });
    Client::new(service, "default")
}

fn operator_of_small_server(cluster: &Cluster, most: u64) -> Running {
    let client = client_of_small_server(&cluster.client(), most);
    cluster.run_manager(controllers(Manager::new(client, cluster.options("observatory"))))
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_too_large_is_packed_and_survives_a_restart() {
    let cluster = cluster().await;
    let first = operator_of_small_server(&cluster, 5000);
    let tasks: Vec<_> = (0..60)
        .map(|number: usize| {
            let above = number.checked_sub(10).map(|above| format!("t{above}"));
            task(&format!("t{number}"), &above.as_deref().into_iter().collect::<Vec<_>>())
        })
        .collect();
    submit(&cluster, "w", json!({"tasks": tasks})).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| status.encoded_tasks.is_some())
        })
        .await;
    first.kill().await;
    let _second = operator_of_small_server(&cluster, 5000);
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.progress.as_deref()), (Phase::Succeeded, Some("60/60")));
    assert!(status.tasks.is_empty(), "they would not fit");
    assert_eq!(cluster.list::<Pod>().await.len(), 60, "every task ran once");

    // People read all of it all the same, and why.
    let whole = cli::get(&cluster.client(), "default", "w").await.expect("it is there");
    let status = whole.status.expect("a status");
    assert_eq!(status.tasks.len(), 60);
    assert!(status.tasks.iter().all(|task| task.phase == Phase::Succeeded && task.pod_name.is_some()));
    cluster.pass(Duration::from_secs(5)).await;
    let events = cluster.list::<Event>().await;
    let told =
        events.iter().find(|event| event.reason.as_deref() == Some("StatusTooLarge")).expect("an event");
    let note = told.note.as_deref().unwrap_or_default();
    assert!(note.contains("steer workflow get w") && note.contains("too large"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_is_itself_too_large_is_refused_in_words() {
    let cluster = cluster().await;
    let tasks = json!([{"name": "a", "image": "i", "args": ["x".repeat(4 * 1024 * 1024)]}]);
    let object: Observatory = serde_json::from_value(workflow("w", json!({"tasks": tasks}))).expect("one");
    let api: kube::Api<Observatory> = kube::Api::namespaced(cluster.client(), "default");
    let error = api.create(&Default::default(), &object).await.expect_err("4 MiB");
    assert!(error.to_string().contains("too large"), "{error}");
}
