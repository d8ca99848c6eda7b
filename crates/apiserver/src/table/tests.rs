use serde_json::{Value, json};

use super::*;
use crate::types::{Catalog, crd};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn cells(group: &str, version: &str, plural: &str, object: &Value) -> Value {
    let catalog = Catalog::builtin();
    let resource = catalog.find(group, version, plural).expect("a built-in resource");
    let table = render(resource, &[object], IncludeObject::None, now());
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect();
    let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!(names.len(), cells.len(), "a cell for every column of {plural}");
    names.into_iter().map(ToOwned::to_owned).zip(cells).collect()
}

fn has(cells: &Value, expected: &Value) {
    for (name, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(&cells[name], value, "{name} in {cells}");
    }
}

fn pod(status: &Value) -> Value {
    json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
        "status": status,
    })
}

#[test]
fn the_status_of_a_pod_tells_what_it_is_waiting_for() {
    let running = |ready: bool| json!({"ready": ready, "restartCount": 0, "state": {"running": {}}});
    for (status, expected) in [
        (
            json!({"phase": "Pending"}),
            json!({"Ready": "0/2", "Status": "Pending", "Restarts": "0", "Age": "60m"}),
        ),
        (
            json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [running(true), running(true)]}),
            json!({"Ready": "2/2", "Status": "Running", "IP": "10.0.0.1", "Node": "n1", "Nominated Node": "<none>"}),
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
            json!({"Status": "Init:0/1"}),
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
            json!({"Status": "Init:ExitCode:2"}),
        ),
        (
            json!({"phase": "Running", "containerStatuses": [
                {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}},
                running(true),
            ]}),
            json!({"Ready": "1/2", "Status": "CrashLoopBackOff", "Restarts": "3 (2m ago)"}),
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            ]}),
            json!({"Status": "Completed"}),
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), json!({"Status": "Evicted"})),
    ] {
        has(&cells("", "v1", "pods", &pod(&status)), &expected);
    }
    let mut dying = pod(&json!({"phase": "Running"}));
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:59:00Z");
    has(&cells("", "v1", "pods", &dying), &json!({"Status": "Terminating"}));
}

#[test]
fn a_finished_pod_says_so_in_its_row() {
    let catalog = Catalog::builtin();
    let pods = catalog.find("", "v1", "pods").expect("pods");
    let done = pod(&json!({"phase": "Succeeded"}));
    let table = render(pods, &[&done], IncludeObject::Metadata, now());
    assert_eq!(table["rows"][0]["conditions"][0]["type"], "Completed");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "p");
}

#[test]
fn every_kind_that_people_look_at_has_its_columns() {
    let template =
        json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:2"}]}});
    let created = "2026-01-01T00:59:30Z";
    for (group, version, plural, object, expected) in [
        (
            "apps",
            "v1",
            "deployments",
            json!({"spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"a": "b"}}},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            json!({"Ready": "1/3", "Up-to-date": 2, "Available": 1, "Containers": "a,b", "Images": "x:1,y:2", "Selector": "a=b"}),
        ),
        (
            "apps",
            "v1",
            "replicasets",
            json!({"spec": {"replicas": 3}, "status": {"replicas": 2}}),
            json!({"Desired": 3, "Current": 2, "Ready": 0, "Selector": "<none>"}),
        ),
        (
            "apps",
            "v1",
            "statefulsets",
            json!({"spec": {"replicas": 1}, "status": {"readyReplicas": 1}}),
            json!({"Ready": "1/1"}),
        ),
        (
            "apps",
            "v1",
            "daemonsets",
            json!({"status": {"desiredNumberScheduled": 1}}),
            json!({"Desired": 1, "Node Selector": "<none>"}),
        ),
        (
            "batch",
            "v1",
            "jobs",
            json!({"spec": {"completions": 2}, "status": {"succeeded": 1, "startTime": "2026-01-01T00:58:00Z"}}),
            json!({"Status": "Running", "Completions": "1/2", "Duration": "2m"}),
        ),
        (
            "batch",
            "v1",
            "cronjobs",
            json!({"spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}]}}),
            json!({"Schedule": "* * * * *", "Timezone": "<none>", "Suspend": "False", "Active": 1, "Last Schedule": "<none>"}),
        ),
        (
            "",
            "v1",
            "services",
            json!({"spec": {"type": "NodePort", "clusterIPs": ["10.96.0.1"], "selector": {"a": "b"},
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}}),
            json!({"Type": "NodePort", "Cluster-IP": "10.96.0.1", "External-IP": "<none>",
                "Port(s)": "80:30080/TCP,53/UDP", "Selector": "a=b"}),
        ),
        (
            "",
            "v1",
            "services",
            json!({"spec": {"type": "LoadBalancer"}}),
            json!({"External-IP": "<pending>", "Port(s)": "<none>"}),
        ),
        (
            "",
            "v1",
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}], "ports": [{"port": 80}, {"port": 81}]}]}),
            json!({"Endpoints": "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more..."}),
        ),
        (
            "discovery.k8s.io",
            "v1",
            "endpointslices",
            json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            json!({"AddressType": "IPv4", "Ports": "80", "Endpoints": "10.0.0.1"}),
        ),
        (
            "discovery.k8s.io",
            "v1",
            "endpointslices",
            json!({}),
            json!({"Ports": "<unset>", "Endpoints": "<unset>"}),
        ),
        (
            "networking.k8s.io",
            "v1",
            "ingresses",
            json!({"spec": {"rules": [{"host": "a.b"}], "tls": [{}]}}),
            json!({"Class": "<none>", "Hosts": "a.b", "Address": "", "Ports": "80, 443"}),
        ),
        (
            "",
            "v1",
            "nodes",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6", "architecture": "amd64"},
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
            json!({"Status": "Ready,SchedulingDisabled", "Roles": "control-plane", "Version": "v1", "Internal-IP": "10.0.0.9",
                "External-IP": "<none>", "OS-Image": "<unknown>", "Kernel-Version": "6 (amd64)"}),
        ),
        ("", "v1", "namespaces", json!({"status": {"phase": "Active"}}), json!({"Status": "Active"})),
        ("", "v1", "configmaps", json!({"data": {"a": "1"}, "binaryData": {"b": ""}}), json!({"Data": 2})),
        (
            "",
            "v1",
            "secrets",
            json!({"type": "Opaque", "data": {"a": ""}}),
            json!({"Type": "Opaque", "Data": 1}),
        ),
        (
            "",
            "v1",
            "events",
            json!({"type": "Normal", "reason": "Started", "message": " hi\n", "lastTimestamp": "2026-01-01T00:59:00Z",
                "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"}}),
            json!({"Last Seen": "60s", "Object": "pod/p", "Message": "hi", "Source": "kubelet, n", "Count": 1}),
        ),
        (
            "events.k8s.io",
            "v1",
            "events",
            json!({"type": "Normal", "note": "hi", "eventTime": "2026-01-01T00:59:00.000000Z", "regarding": {"kind": "Pod", "name": "p"},
                "reportingController": "me"}),
            json!({"Last Seen": "60s", "Object": "pod/p", "Message": "hi", "Source": "me"}),
        ),
        (
            "coordination.k8s.io",
            "v1",
            "leases",
            json!({"spec": {"holderIdentity": "me"}}),
            json!({"Holder": "me"}),
        ),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
            json!({"Role": "Role/r", "ServiceAccounts": "n/s", "Users": ""}),
        ),
        (
            "",
            "v1",
            "persistentvolumeclaims",
            json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
            json!({"Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO", "VolumeMode": "<unset>"}),
        ),
        (
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]}}),
            json!({"Reference": "Deployment/d", "Targets": "cpu: <unknown>/50%", "MinPods": "<unset>", "MaxPods": 5}),
        ),
        (
            "policy",
            "v1",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1}}),
            json!({"Min Available": "1", "Max Unavailable": "N/A"}),
        ),
        ("", "v1", "serviceaccounts", json!({}), json!({"Age": "30s"})),
    ] {
        let mut object = object;
        object["metadata"]["creationTimestamp"] = json!(created);
        has(&cells(group, version, plural, &object), &expected);
    }
}

#[test]
fn custom_columns_follow_their_paths() {
    let mut definition = json!({
        "metadata": {"name": "widgets.g.example.com", "uid": "1", "generation": 1},
        "spec": {
            "group": "g.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}, "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
                {"name": "When", "type": "date", "jsonPath": ".spec.when"},
                {"name": "First", "type": "string", "jsonPath": ".spec.l[0]"},
                {"name": "Lab", "type": "string", "jsonPath": ".metadata.labels.my\\.label"},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            ]}],
        },
    });
    definition["status"] = crd::status_for(&definition, &[], now());
    let catalog = Catalog::builtin().with_definitions(&[definition]);
    let widgets = catalog.find("g.example.com", "v1", "widgets").expect("widgets");
    let object = json!({
        "metadata": {"name": "a", "labels": {"my.label": "v"}},
        "spec": {"size": 3, "mode": 7, "when": "2026-01-01T00:59:00Z", "l": ["x", "y"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let table =
        render(widgets, &[&object, &json!({"metadata": {"name": "b"}})], IncludeObject::Object, now());
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "7", "60s", "x", "v", "True"]));
    assert_eq!(table["rows"][0]["object"], object);
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, null, null, null, null]));
}
