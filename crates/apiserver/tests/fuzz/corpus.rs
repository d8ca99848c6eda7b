//! Good things to begin with.

use serde_json::{Value, json};

use crate::support::Client;

/// Where custom resources of the corpus live.
pub(crate) const THINGS: &str = "/apis/fuzz.example.com/v1/namespaces/default/things";

/// What targets change: a Deployment, a ConfigMap and a custom resource.
pub(crate) async fn prepare(client: &Client) {
    let definition = definition("things", "Thing", "self.size < 100");
    client.post(DEFINITIONS, &definition).await.ok(201);
    settle(client, THINGS).await;
    for (path, object) in objects().into_iter().filter(|(_, object)| object["metadata"]["name"] == "kept") {
        client.post(path, &object).await.ok(201);
    }
}

/// Where definitions are.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Lets the server begin to serve a definition.
pub(crate) async fn settle(client: &Client, path: &str) {
    for _ in 0..1000 {
        if client.get(path).await.code != 404 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A definition with a rule for its `spec`.
pub(crate) fn definition(plural: &str, kind: &str, rule: &str) -> Value {
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
        "size": {"type": "integer", "default": 3, "minimum": 0}, "name": {"type": "string", "pattern": "^[a-z]*$"},
        "list": {"type": "array", "maxItems": 20, "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "parts": {"type": "array", "maxItems": 20, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "maxLength": 20},
                "any": {"x-kubernetes-int-or-string": true}}}},
        "map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 50}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.fuzz.example.com")},
        "spec": {"group": "fuzz.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.name"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

/// Objects, and where they are created.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": 80, "path": "/"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "m"}}]}}],
        "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}}});
    let meta = json!({"name": "kept", "labels": {"l": "1"}, "annotations": {"a": "1"}});
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta,
            "data": {"a": "b", "c": "d"}, "binaryData": {"e": "AA=="}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": meta, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}),
        ),
        (
            THINGS,
            json!({"apiVersion": "fuzz.example.com/v1", "kind": "Thing", "metadata": meta, "spec": {
            "size": 1, "name": "x", "list": [1, 2], "parts": [{"id": "a", "any": 1}, {"id": "b", "any": "x"}],
            "map": {"k": "v"}, "free": {"x": [1, {"y": null}]}}}),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "p-"}, "spec": template["spec"]}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"generateName": "s-"}, "spec": {"type": "NodePort", "selector": {"a": "b"},
                "ports": [{"name": "a", "port": 80, "targetPort": "web"}]}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"generateName": "c-"}, "spec": {"schedule": "*/5 * * * *", "timeZone": "Etc/UTC",
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i"}]}}}}}}),
        ),
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"generateName": "l-"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"},
                "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]}}),
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
    ]
}

/// What is sent to change the kept objects, by media type.
pub(crate) fn patches() -> Vec<(&'static str, Value)> {
    vec![
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"},
            {"op": "test", "path": "/metadata/name", "value": "kept"}, {"op": "copy", "from": "/metadata", "path": "/data"},
            {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"}, {"op": "remove", "path": "/spec"},
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "i:2"}]),
        ),
        (
            "application/merge-patch+json",
            json!({"metadata": {"labels": {"x": null}}, "data": {"n": "m"},
            "spec": {"size": 4, "list": [5], "template": null}}),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"metadata": {"$retainKeys": ["name"], "labels": {"$patch": "replace"},
            "$deleteFromPrimitiveList/finalizers": ["f"]}, "spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
                "containers": [{"name": "c", "env": [{"name": "A", "$patch": "delete"}], "ports": [{"containerPort": 80, "$patch": "merge"}]},
                    {"name": "d", "image": "j"}], "volumes": [{"name": "v", "$patch": "delete"}]}}}}),
        ),
        (
            "application/apply-patch+yaml",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"},
            "data": {"a": "z"}}),
        ),
        (
            "application/apply-patch+yaml",
            json!({"apiVersion": "fuzz.example.com/v1", "kind": "Thing",
            "metadata": {"name": "kept", "managedFields": []}, "spec": {"list": [2, 3], "parts": [{"id": "a"}, {"id": "c"}]}}),
        ),
        (
            "application/apply-patch+yaml",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kept"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{"name": "e", "image": "k",
                "ports": [{"containerPort": 80}]}]}}}}),
        ),
        (
            "application/merge-patch+json",
            json!({"metadata": {"managedFields": [{"manager": "m", "operation": "Apply",
            "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}, "k:{\"id\":\"a\"}": {}, "v:1": {}, "i:0": {}}}}]}}),
        ),
    ]
}

/// Rules in CEL that touch everything.
pub(crate) const RULES: &[&str] = &[
    "self.size < 100",
    "!has(self.name) || self.name.matches('^[a-z]+$')",
    "self.list.all(x, x > 0) && self.list.exists_one(x, x == 1)",
    "self.parts.map(p, p.id).filter(i, i != 'z').size() <= 20",
    "self.map.all(k, self.map[k].startsWith('v') || k in ['a', 'b'])",
    "self.?name.orValue('none').lowerAscii().split(',').join('-') != ''",
    "has(self.size) ? self.size + 1 > 0 : double(self.size) / 2.0 < 1.0e3",
    "[1, 2, 3].sum() == 6 && {'a': 1}.a == 1 && type(self.size) == int",
    "duration('1h') < duration('2h') && timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
    "quantity('1Gi').isGreaterThan(quantity('1Mi')) && isIP('10.0.0.1') && url('https://a/b').getHost() == 'a'",
    "'%s %d'.format(['a', 1]).replace('a', 'b', 1).substring(0, 1) == 'b'",
    "b'\\x00\\xff'.size() == 2 && 'aé'.charAt(1) == 'é' && r'\\d' != '\\\\D'",
    "self.list.isSorted() && self.list.indexOf(2) != 7 && sets.contains([1], self.list)",
    "cel.bind(x, self.size, x * x * x) > -1 && self.free.x.size() > 0",
];

/// What lists are asked for.
pub(crate) const QUERIES: &[(&str, &str)] = &[
    ("labelSelector", "a=b,c!=d,e in (f,g),h notin (i),j,!k"),
    ("labelSelector", "example.com/long-key.x_y=V.a_l-u"),
    ("fieldSelector", "metadata.name=kept,metadata.namespace!=x"),
    ("fieldSelector", "spec.name==x"),
    ("continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhXHUwMDAwIn0"),
    ("limit", "500"),
    ("resourceVersion", "5"),
    ("resourceVersionMatch", "NotOlderThan"),
    ("timeoutSeconds", "1"),
    ("includeObject", "None"),
    ("gracePeriodSeconds", "0"),
    ("propagationPolicy", "Background"),
];
