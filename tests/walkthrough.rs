//! The whole story of the README, from the first command to the last process.

mod support;

use std::collections::BTreeSet;

use serde_json::Value;
use support::{Up, eventually, http_get, processes_with, repository};
use xtask::parts;

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Names of the pods that are ready.
fn ready_pods(up: &Up) -> BTreeSet<String> {
    let ready = |pod: &Value| {
        pod.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|conditions| {
            conditions.iter().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
        })
    };
    up.objects(&["pods"]).iter().filter(|p| ready(p)).map(|p| text(p, "/metadata/name").to_owned()).collect()
}

#[test]
fn a_webapp_runs_answers_scales_and_goes_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let up = Up::start(&dir);
    let sample = repository().join("config/samples/example_v1_webapp.yaml");
    let sample = sample.to_str().unwrap();

    assert!(up.run(&["apply", "-f", sample]).contains("created"));
    assert!(up.run(&["apply", "-f", sample]).contains("unchanged"));
    let webapp = up.objects(&["webapps"]).remove(0);
    let name = text(&webapp, "/metadata/name").to_owned();
    let replicas =
        usize::try_from(webapp.pointer("/spec/replicas").and_then(Value::as_u64).unwrap()).unwrap();

    eventually("every replica is ready", || (ready_pods(&up).len() == replicas).then_some(()));
    eventually("the WebApp says so", || {
        let webapp = up.objects(&["webapps", &name]).remove(0);
        (text(&webapp, "/status/phase") == "Ready").then_some(())
    });
    let listed = up.run(&["get", "webapps,deployments,pods,services"]);
    for kind in ["webapp.example.com/", "deployment.apps/", "pod/", "service/"] {
        assert!(listed.contains(kind), "{kind} is missing in\n{listed}");
    }

    let services = up.run(&["get", "services", &name]);
    let address = services.lines().last().unwrap().split_whitespace().last().unwrap().to_owned();
    let body = eventually("the Service answers at the address that `steer get services` names", || {
        http_get(&address)
    });
    assert!(body.contains(&name), "{body}");

    up.run(&["scale", &format!("webapp/{name}"), "--replicas=3"]);
    let pods =
        eventually("three replicas are ready", || Some(ready_pods(&up)).filter(|pods| pods.len() == 3));
    let answered: BTreeSet<String> = (0..30)
        .filter_map(|_| http_get(&address))
        .filter_map(|body| pods.iter().find(|pod| body.contains(pod.as_str())).cloned())
        .collect();
    assert_eq!(answered, pods, "every replica takes its share of the requests");

    let first = pods.first().unwrap();
    assert!(!up.run(&["logs", first]).is_empty(), "a pod that answered has something in its log");
    assert!(up.run(&["describe", &format!("webapp/{name}")]).contains("Events:"));

    up.run(&["delete", &format!("webapp/{name}")]);
    eventually("nothing is left behind", || {
        let left: usize = ["webapps", "deployments", "replicasets", "pods", "endpointslices"]
            .iter()
            .map(|kind| {
                let objects = up.objects(&[kind]);
                objects.iter().filter(|o| text(o, "/metadata/name").starts_with(&name)).count()
            })
            .sum();
        (left == 0).then_some(())
    });
    up.stop();
    assert_eq!(processes_with(dir.to_str().unwrap()), Vec::<u32>::new(), "no process survives Ctrl-C");
}

#[test]
fn a_second_start_finds_the_state_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let sample = repository().join("config/samples/example_v1_webapp.yaml");

    let up = Up::start(&dir);
    up.run(&["apply", "-f", sample.to_str().unwrap()]);
    let before = eventually("a pod is ready", || Some(ready_pods(&up)).filter(|pods| !pods.is_empty()));
    let uid = text(&up.objects(&["webapps"]).remove(0), "/metadata/uid").to_owned();
    up.stop();

    let up = Up::start(&dir);
    assert_eq!(text(&up.objects(&["webapps"]).remove(0), "/metadata/uid"), uid);
    eventually("the pods run again", || (ready_pods(&up).len() >= before.len()).then_some(()));
    up.stop();
}

/// What answers at the address that `steer get services` names.
fn fetch(up: &Up, service: &str) -> String {
    eventually(&format!("the Service {service} answers"), || {
        let services = up.run(&["get", "services", service]);
        http_get(services.lines().last()?.split_whitespace().last()?)
    })
}

#[test]
fn three_replicas_of_nginx_share_port_80() {
    if parts::or_skip(parts::nginx()).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    let sample = repository().join("config/samples/example_v1_webapp_nginx.yaml");
    up.run(&["apply", "-f", sample.to_str().unwrap()]);
    eventually("three replicas are ready", || (ready_pods(&up).len() == 3).then_some(()));
    let body = fetch(&up, "nginx-app");
    assert!(body.contains("nginx"), "{body}");
    up.stop();
}

#[test]
fn plain_processes_serve_a_webapp_where_there_are_no_sandboxes() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start_with(&folder.path().join("state"), &["--runtime", "process"]);
    let sample = repository().join("config/samples/example_v1_webapp.yaml");
    up.run(&["apply", "-f", sample.to_str().unwrap()]);
    up.run(&["scale", "webapp/hello", "--replicas=2"]);
    let pods = eventually("two replicas are ready", || Some(ready_pods(&up)).filter(|pods| pods.len() == 2));
    let body = fetch(&up, "hello");
    assert!(pods.iter().any(|pod| body.contains(pod.as_str())), "{body}");
    up.stop();
}
