//! kill -9 at random moments: what was acknowledged is there, revisions never go back, and no
//! process of a deleted pod survives.

mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use rand::Rng as _;
use serde_json::json;
use support::{Up, client, eventually, processes_with};

const KILLS: usize = 10;
const WRITERS: u64 = 8;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": name}})).unwrap()
}

fn pod(name: &str, mark: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "steersman.io/steer", "args": ["pause"],
                "env": [{"name": "CRASH_TEST", "value": format!("{mark}-{name}")}],
            }],
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_during_a_create_storm_lose_nothing_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let mark = format!("crash-{}", std::process::id());
    let acknowledged: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let next = Arc::new(AtomicU64::new(0));
    let mut deleted_pods: Vec<String> = Vec::new();
    let mut highest = 0;

    for round in 0..KILLS {
        let up = Up::start(&dir);
        let client = client(&up.kubeconfig()).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let pods: Api<Pod> = Api::namespaced(client, "default");

        let list = maps.list(&ListParams::default()).await.unwrap();
        let revision: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        assert!(revision >= highest, "revision {revision} after {highest} was seen");
        let there: BTreeMap<String, u64> = list
            .items
            .into_iter()
            .map(|m| (m.metadata.name.unwrap(), m.metadata.resource_version.unwrap().parse().unwrap()))
            .collect();
        for (name, written) in acknowledged.lock().unwrap().iter() {
            assert_eq!(there.get(name), Some(written), "acknowledged {name} after {round} kills");
        }

        let keeper = format!("kept-{round}");
        pods.create(&PostParams::default(), &pod(&keeper, &mark)).await.unwrap();
        let doomed = format!("doomed-{round}");
        pods.create(&PostParams::default(), &pod(&doomed, &mark)).await.unwrap();
        eventually("both pods run", || {
            let running = |name: &str| !processes_with(&format!("CRASH_TEST={mark}-{name}\0")).is_empty();
            (running(&keeper) && running(&doomed)).then_some(())
        });
        pods.delete(&doomed, &DeleteParams::default()).await.unwrap();
        deleted_pods.push(doomed);

        let storm: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (maps, acknowledged, next) = (maps.clone(), Arc::clone(&acknowledged), Arc::clone(&next));
                tokio::spawn(async move {
                    loop {
                        let name = format!("storm-{}", next.fetch_add(1, Ordering::Relaxed));
                        match maps.create(&PostParams::default(), &config_map(&name)).await {
                            Ok(made) => {
                                let revision = made.metadata.resource_version.unwrap().parse().unwrap();
                                acknowledged.lock().unwrap().insert(name, revision);
                            }
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        let moment = rand::rng().random_range(20..400);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        up.kill();
        for writer in storm {
            writer.abort();
            let _ = writer.await;
        }
        highest = acknowledged.lock().unwrap().values().copied().max().unwrap_or(highest);
    }

    let up = Up::start(&dir);
    assert!(acknowledged.lock().unwrap().len() > KILLS, "the storm got somewhere");
    eventually("no process of a deleted pod survives", || {
        let alive: Vec<_> = deleted_pods
            .iter()
            .filter(|name| !processes_with(&format!("CRASH_TEST={mark}-{name}\0")).is_empty())
            .collect();
        alive.is_empty().then_some(())
    });
    eventually("every pod that was not deleted runs again", || {
        (0..KILLS)
            .all(|round| !processes_with(&format!("CRASH_TEST={mark}-kept-{round}\0")).is_empty())
            .then_some(())
    });
    up.stop();
    assert_eq!(
        processes_with(&format!("CRASH_TEST={mark}")),
        Vec::<u32>::new(),
        "no process survives the end"
    );
}
