//! Real processes that die at the worst moment, on a real control plane.

use serde_json::json;
use xtask::parts::{self, or_skip};

use crate::{
    Operator, database, hurry, kubernetes,
    scenario::{Place, disk_type, resource},
    support::eventually,
    world::World,
};

/// One of two controllers is killed while its action goes on elsewhere: the other one follows it
/// to its end, and begins nothing twice.
#[test]
fn when_the_controller_that_acts_is_killed_the_other_goes_on() {
    let (Some(kubernetes), Some(server)) = (kubernetes(), or_skip(parts::postgres())) else { return };
    let (folder, world) = (tempfile::tempdir().unwrap(), World::start());
    let variables = [hurry(), database(&server)].concat();
    let start = |name: &str| Operator::start(kubernetes.kubeconfig(), &folder.path().join(name), &variables);
    let mut first = start("first");
    let place = Place { address: &first.address.clone(), kubeconfig: kubernetes.kubeconfig() };
    let mut job = disk_type(&world);
    job["name"] = json!("Job");
    job["metadata"]["action_defaults"]["http"] = json!({
        "base_url": world.url,
        "apply": {"path": "/jobs/{{ name }}"},
        "destroy": {"path": "/jobs/{{ name }}"},
        "poll": {"path": "/jobs/{{ name }}", "done": {"at": "/state", "in": ["done"]}, "interval_seconds": 1},
    });
    assert_eq!(place.send("POST", "/api/v1/resource-types", Some(job)).0, 201);
    for name in ["one", "two"] {
        let (code, made) =
            place.send("POST", "/api/v1/resources", Some(resource("Job", name, &json!({"size": 10}))));
        assert_eq!(code, 201, "{made}");
    }
    eventually("both jobs have begun", || (world.lock().jobs.len() == 2).then_some(()));

    let second = start("second");
    first.kill();
    let place = Place { address: &second.address, kubeconfig: kubernetes.kubeconfig() };
    // While nobody leads, the standby's REST API takes wishes all the same.
    let (code, made) =
        place.send("POST", "/api/v1/resources", Some(resource("Job", "three", &json!({"size": 10}))));
    assert_eq!(code, 201, "{made}");
    eventually("the other one begins the third job", || (world.lock().jobs.len() == 3).then_some(()));
    for ended in world.lock().jobs.values_mut() {
        *ended = true;
    }
    for name in ["one", "two", "three"] {
        place
            .wait(&format!("/api/v1/resources/by-name/Job/v1/{name}"), "ready", |it| it["status"] == "ready");
    }
    {
        let state = world.lock();
        assert_eq!(state.keys.len(), 3, "one attempt for each: {:?}", state.keys);
        assert!(state.keys.values().all(|times| *times == 1), "{:?}", state.keys);
    }
    let told = server.query("SELECT count(*), bool_and(success) FROM reconciliation_history").unwrap();
    assert_eq!(told, "3|t", "\n{}", second.log());
}
