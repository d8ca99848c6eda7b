//! Whatever comes in, an answer goes out, and it never says that the server is at fault.

mod support;

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::World;

/// Objects that are fine, and where they belong.
fn good() -> Vec<(&'static str, Value)> {
    let pod_spec = json!({
        "containers": [{
            "name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}], "tolerations": [{"operator": "Exists"}],
    });
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}});
    let meta = json!({"name": "x", "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]});
    let object = |kind: &str, api_version: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": meta});
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    };
    let workload = json!({"spec": {"selector": selector, "template": template, "serviceName": "s", "strategy": {"rollingUpdate": {"maxSurge": 1}}}});
    vec![
        ("/api/v1/namespaces/default/pods", object("Pod", "v1", json!({"spec": pod_spec}))),
        (
            "/api/v1/namespaces/default/services",
            object(
                "Service",
                "v1",
                json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30100}], "clusterIP": "10.96.1.1"}}),
            ),
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            object("ConfigMap", "v1", json!({"data": {"a": "b"}, "binaryData": {"c": "AA=="}})),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            object("Secret", "v1", json!({"stringData": {"a": "b"}, "data": {"c": "AA=="}})),
        ),
        (
            "/api/v1/namespaces/default/events",
            object(
                "Event",
                "v1",
                json!({"involvedObject": {"namespace": "default", "name": "p"}, "series": {"count": 1}}),
            ),
        ),
        ("/api/v1/namespaces", object("Namespace", "v1", json!({"spec": {"finalizers": ["kubernetes"]}}))),
        ("/api/v1/nodes", object("Node", "v1", json!({"status": {"capacity": {"cpu": "1"}}}))),
        ("/apis/apps/v1/namespaces/default/deployments", object("Deployment", "apps/v1", workload.clone())),
        ("/apis/apps/v1/namespaces/default/statefulsets", object("StatefulSet", "apps/v1", workload.clone())),
        ("/apis/apps/v1/namespaces/default/daemonsets", object("DaemonSet", "apps/v1", workload)),
        ("/apis/batch/v1/namespaces/default/jobs", object("Job", "batch/v1", json!({"spec": job}))),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            object(
                "CronJob",
                "batch/v1",
                json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
            ),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            object(
                "Lease",
                "coordination.k8s.io/v1",
                json!({"spec": {"leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
            ),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            object(
                "EndpointSlice",
                "discovery.k8s.io/v1",
                json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 1}]}),
            ),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            object(
                "HorizontalPodAutoscaler",
                "autoscaling/v2",
                json!({"spec": {"maxReplicas": 2, "behavior": {"scaleUp": {}}, "scaleTargetRef": {"kind": "D", "name": "d"}}}),
            ),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            object(
                "RoleBinding",
                "rbac.authorization.k8s.io/v1",
                json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
            ),
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
            let mut definition = object(
                "CustomResourceDefinition",
                "apiextensions.k8s.io/v1",
                json!({"spec": {
                    "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "additionalPrinterColumns": [{"name": "A", "type": "date", "jsonPath": ".spec.a"}]}],
                }}),
            );
            definition["metadata"]["name"] = "widgets.example.com".into();
            definition
        }),
        (
            "/api/v1/namespaces/default/pods/p/binding",
            object("Binding", "v1", json!({"target": {"kind": "Node", "name": "n"}})),
        ),
        (
            "/api/v1/namespaces/default/pods/p/eviction",
            object("Eviction", "policy/v1", json!({"deleteOptions": {}})),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts/s/token",
            object("TokenRequest", "authentication.k8s.io/v1", json!({"spec": {"expirationSeconds": 600}})),
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            object(
                "SelfSubjectAccessReview",
                "authorization.k8s.io/v1",
                json!({"spec": {"resourceAttributes": {"verb": "get"}}}),
            ),
        ),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
        Just(json!("")),
        Just(json!({})),
        Just(json!([])),
        Just(json!("\u{0}ä")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,5}", inner), 0..3)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Every place in a tree.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                places(inner, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                places(inner, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn objects_with_something_odd_in_them_get_an_answer(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any_json()), 12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let world = World::new().await;
            let client = &world.client;
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            client.post("/api/v1/namespaces/default/pods", &pod).await.ok(201);
            client.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "s"}})).await.ok(201);
            let good = good();
            for (which, place, odd) in &changes {
                let (path, object) = &good[which.index(good.len())];
                let mut found = Vec::new();
                places(object, "", &mut found);
                let at = &found[place.index(found.len())];
                let mut changed = object.clone();
                if let Some(target) = changed.pointer_mut(at) {
                    *target = odd.clone();
                }
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let one = format!("{path}/{name}");
                let patch = json!([{"op": "replace", "path": at, "value": odd}]);
                let answers = [
                    client.post(path, &changed).await,
                    client.post(path, object).await,
                    client.put(&one, &changed).await,
                    client.patch("merge", &one, &changed).await,
                    client.patch("strategic-merge", &one, &changed).await,
                    client.patch("apply", &format!("{one}?fieldManager=m&force=true"), &changed).await,
                    client.patch("json", &one, &patch).await,
                    client.patch("merge", &format!("{one}/status"), &changed).await,
                    client.patch("merge", &format!("{one}/scale"), &changed).await,
                    client.send(Method::DELETE, &one, &[("content-type", "application/json")], changed.to_string().as_bytes()).await,
                    client.get(&format!("{path}?limit=5")).await,
                    client.send(Method::GET, path, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")], b"").await,
                    client.send(Method::GET, path, &[("accept", "application/yaml")], b"").await,
                ];
                for answer in &answers {
                    let fine = (200..500).contains(&answer.code) || answer.code == 503;
                    assert!(fine, "{path} {at} {odd}: {} {:?}", answer.code, answer.body);
                }
                client.delete(&one).await;
            }
        });
    }
}
