//! The operator against a real Kubernetes API server, where one can be had. The test itself plays
//! the kubelet.

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use steersman::{CancellationToken, LeaseOptions, Manager, Options};
use steersman_observatory::{LEASE, Observatory, ObservatoryStatus, Phase, controllers, crd};
use support::{of, phases, task, workflow};
use xtask::parts::{Kubernetes, KubernetesOptions, or_skip};

async fn client(kubernetes: &Kubernetes) -> Client {
    let file = Kubeconfig::read_from(kubernetes.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// Waits until `probe` gives something, for a minute.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Ends every pod that has not ended: those with `bad` in their name badly.
async fn play_kubelet(pods: &Api<Pod>) {
    for pod in pods.list(&ListParams::default()).await.expect("pods").items {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            continue;
        }
        let code = i32::from(pod.name_any().contains("bad"));
        let status = json!({"status": {
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "containerStatuses": [{
                "name": "task", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}},
            }],
        }});
        let patched =
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.expect("the status is taken");
    }
}

async fn outcome(workflows: &Api<Observatory>, pods: &Api<Pod>, name: &str) -> ObservatoryStatus {
    eventually(name, || async {
        play_kubelet(pods).await;
        let status = workflows.get(name).await.ok()?.status?;
        status.phase().is_over().then_some(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_run_on_a_real_api_server() {
    let options = KubernetesOptions { scheduler: false, ..KubernetesOptions::default() };
    let started = tokio::task::spawn_blocking(move || Kubernetes::start(&options));
    let Some(kubernetes) = or_skip(started.await.expect("not cancelled")) else {
        return;
    };
    let client = client(&kubernetes).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd()).await.expect("the definition is taken");
    let workflows: Api<Observatory> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("the definition", || async { workflows.list(&ListParams::default()).await.ok() }).await;

    let options =
        Options { lease: Some(LeaseOptions::new("default", LEASE)), ..Options::named("observatory") };
    let stop = CancellationToken::new();
    let running = tokio::spawn(controllers(Manager::new(client.clone(), options)).run(stop.clone()));

    let create = async |name: &str, spec: serde_json::Value| {
        let object = serde_json::from_value(workflow(name, spec)).expect("an Observatory");
        workflows.create(&PostParams::default(), &object).await
    };
    let tasks = json!([task("task-1", &[]), task("task-2", &["task-1"]), task("Task_3", &["task-1"])]);
    create("sample", json!({"tasks": tasks})).await.expect("it is taken");
    let status = outcome(&workflows, &pods, "sample").await;
    assert_eq!((status.phase(), status.progress.as_deref()), (Phase::Succeeded, Some("3/3")));
    eventually("the release of the pods", || async {
        let all = pods.list(&ListParams::default()).await.ok()?;
        all.items.iter().all(|pod| pod.finalizers().is_empty()).then_some(())
    })
    .await;

    let bad = json!({"name": "bad", "image": "i", "retry": {"limit": 1}});
    create("w", json!({"tasks": [bad, task("after", &["bad"])]})).await.expect("it is taken");
    let status = outcome(&workflows, &pods, "w").await;
    assert_eq!(of(&status, "bad").attempts.len(), 1);
    assert_eq!(phases(&status)["after"].1, "UpstreamFailed");

    // What the schema refuses.
    let error = create("empty", json!({"tasks": []})).await.expect_err("no tasks");
    assert!(error.to_string().contains("spec.tasks"), "{error}");
    let error = create("never", json!({"tasks": [task("a", &[])], "maxConcurrent": 0})).await.expect_err("0");
    assert!(error.to_string().contains("maxConcurrent"), "{error}");
    let wrong = json!({"name": "a", "image": "i", "timeout": "soon"});
    let error = create("soon", json!({"tasks": [wrong]})).await.expect_err("no duration");
    assert!(error.to_string().contains("timeout"), "{error}");

    // Spec and status together are more than etcd takes: the status is packed.
    let long = |number: usize| format!("{number:05}{}", "x".repeat(240));
    let tasks: Vec<_> = (0..3000).map(|number| task(&long(number), &[])).collect();
    create("large", json!({"tasks": tasks, "suspend": true})).await.expect("it is taken");
    let status = eventually("a packed status", || async {
        workflows.get("large").await.ok()?.status.filter(|status| status.encoded_tasks.is_some())
    })
    .await;
    assert_eq!((status.reason.as_deref(), status.tasks.len()), (Some("Suspended"), 0));
    let whole = steersman_observatory::cli::get(&client, "default", "large").await.expect("it is there");
    assert_eq!(whole.status.unwrap_or_default().tasks.len(), 3000);
    let note = eventually("an event", || async {
        let events: Api<Event> = Api::namespaced(client.clone(), "default");
        let found = events.list(&ListParams::default()).await.ok()?.items;
        found.into_iter().find(|event| event.reason.as_deref() == Some("StatusTooLarge"))?.note
    })
    .await;
    assert!(note.contains("request is too large"), "{note}");

    // The pods of a workflow that is deleted go with it.
    create("gone", json!({"tasks": [task("a", &[])]})).await.expect("it is taken");
    eventually("the pod", || async { pods.get_opt("gone-a").await.ok()? }).await;
    workflows.delete("gone", &DeleteParams::default()).await.expect("deleted");
    eventually("its end", || async { pods.get_opt("gone-a").await.ok()?.is_none().then_some(()) }).await;
    stop.cancel();
    running.await.expect("not cancelled").expect("a clean end");
}
