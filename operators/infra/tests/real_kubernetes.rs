//! The operator and its REST face on a real Kubernetes API server, where one can be had.

mod support;

use std::future::Future;
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use steersman::{CancellationToken, Manager, Options as ManagerOptions};
use steersman_infra::action::{ActionError, Registry};
use steersman_infra::types::State;
use steersman_infra::{
    History, OPERATOR, OperatorController, Options, Resource, RestOptions, controllers, crds, rest,
};
use support::World;
use xtask::parts::{Kubernetes, KubernetesOptions, or_skip};

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn client(kubernetes: &Kubernetes) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubernetes.kubeconfig()).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn ask(address: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map_or_else(String::new, |body| body.to_string());
    let request = http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.body(http_body_util::Full::new(bytes::Bytes::from(body))).expect("a request");
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let answer = client.request(request).await.expect("an answer");
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_objects_live_on_a_real_api_server() {
    let options =
        KubernetesOptions { controller_manager: false, scheduler: false, ..KubernetesOptions::default() };
    let started = tokio::task::spawn_blocking(move || Kubernetes::start(&options));
    let Some(kubernetes) = or_skip(started.await.expect("not cancelled")) else {
        return;
    };
    let client = client(&kubernetes).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds() {
        definitions.create(&PostParams::default(), &crd).await.expect("created");
        eventually("the definition", || async {
            let conditions = definitions.get(&crd.name_any()).await.ok()?.status?.conditions?;
            conditions.iter().any(|it| it.type_ == "Established" && it.status == "True").then_some(())
        })
        .await;
    }

    let (world, history, stop) =
        (World::default(), History::memory().expect("a history"), CancellationToken::new());
    let plugins = Registry::new().with(world.clone());
    let controller =
        OperatorController { back_off_first: Duration::from_millis(200), ..OperatorController::default() };
    let options = Options {
        controller,
        plugins: plugins.clone(),
        history: history.clone(),
        namespace: "default".into(),
    };
    let manager = controllers(Manager::new(client.clone(), ManagerOptions::named(OPERATOR)), options);
    let running = tokio::spawn(manager.run(stop.clone()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let face = tokio::spawn(rest(client.clone(), RestOptions::new(plugins, history), listener, stop.clone()));

    let kind = json!({"name": "Box", "version": "v1", "schema": {"type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1, "default": 1}}}});
    let (code, answer) = ask(&address, "POST", "/api/v1/resource-types", Some(kind.clone())).await;
    assert_eq!((code, &answer["id"]), (201, &json!(1)), "{answer}");
    assert_eq!(ask(&address, "POST", "/api/v1/resource-types", Some(kind)).await.0, 409);

    world.lock().questions = 2;
    world.lock().pause = Some(Duration::from_millis(50));
    world.lock().failures = vec![ActionError::transient("no luck")];
    let resource = json!({"name": "one", "resource_type_name": "Box", "resource_type_version": "v1",
        "action_plugin": "fake", "spec": {"size": 3, "anything": {"nested": [1, null]}}});
    let (code, answer) = ask(&address, "POST", "/api/v1/resources", Some(resource.clone())).await;
    assert_eq!(
        (code, &answer["status"], &answer["generation"]),
        (201, &json!("pending"), &json!(1)),
        "{answer}"
    );
    assert_eq!(ask(&address, "POST", "/api/v1/resources", Some(resource)).await.0, 409);
    let is = |path: &'static str, status: &'static str| {
        let address = address.clone();
        move || {
            let address = address.clone();
            async move {
                let (_, answer) = ask(&address, "GET", path, None).await;
                (answer["status"] == status).then_some(answer)
            }
        }
    };
    let ready = eventually("ready", is("/api/v1/resources/1", "ready")).await;
    assert_eq!(ready["observed_generation"], 1);
    let change = json!({"spec": {"size": 4}});
    let (code, answer) = ask(&address, "PUT", "/api/v1/resources/1", Some(change)).await;
    assert_eq!((code, &answer["generation"]), (200, &json!(2)), "{answer}");
    eventually("the change", || async {
        let (_, answer) = ask(&address, "GET", "/api/v1/resources/1", None).await;
        (answer["observed_generation"] == 2 && answer["status"] == "ready").then_some(())
    })
    .await;
    let (_, outputs) = ask(&address, "GET", "/api/v1/resources/1/outputs", None).await;
    assert_eq!(outputs, json!({"outputs": {"size": 4}}));
    let resources: Api<Resource> = Api::namespaced(client.clone(), "default");
    let object = resources.get("box.one").await.expect("the object");
    assert_eq!((object.state(), object.id()), (State::Ready, Some(1)));

    assert_eq!(ask(&address, "DELETE", "/api/v1/resource-types/1", None).await.0, 409);
    assert_eq!(ask(&address, "DELETE", "/api/v1/resources/1", None).await.0, 202);
    eventually("the end", || async { resources.get_opt("box.one").await.ok()?.is_none().then_some(()) })
        .await;
    assert!(world.lock().things.is_empty());
    assert!(world.lock().begun.values().all(|times| *times == 1));
    assert_eq!(ask(&address, "DELETE", "/api/v1/resource-types/1", None).await.0, 204);
    stop.cancel();
    running.await.expect("not cancelled").expect("ended well");
    face.await.expect("not cancelled").expect("ended well");
}
