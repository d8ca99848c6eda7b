//! Ten faults that an earlier implementation of workflows had. Each is a test here, so that this
//! one never gets them.

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use steersman_observatory::dag::{Engine, Graph};
use steersman_observatory::{Observatory, Phase, TaskSpec};
use support::*;

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_while_nothing_happens() {
    let cluster = cluster().await;
    cluster.pods().succeed("w", Duration::from_secs(36_000));
    let operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[]), task("b", &["a"])]})).await;
    cluster.pass(Duration::from_secs(60)).await;
    let before = operator.metric("observatory_reconcile_total");
    cluster.pass(Duration::from_secs(3600)).await;
    assert_eq!(operator.metric("observatory_reconcile_total"), before);
}

#[tokio::test(start_paused = true)]
async fn tasks_may_have_names_that_no_pod_can_have() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let (long, other) = ("x".repeat(253), format!("{}y", "x".repeat(252)));
    let tasks = json!([
        task("A", &[]),
        task("b_c", &["A"]),
        task("ä ö.ü/ß", &["b_c"]),
        task(&long, &[]),
        task(&other, &[]),
    ]);
    submit(&cluster, "w", json!({"tasks": tasks})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.progress.as_deref()), (Phase::Succeeded, Some("5/5")));
}

#[tokio::test(start_paused = true)]
async fn workflows_whose_pods_would_have_the_same_name_both_run() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "a", json!({"tasks": [task("b-c", &[])]})).await;
    submit(&cluster, "a-b", json!({"tasks": [task("c", &[])]})).await;
    for name in ["a", "a-b"] {
        assert_eq!(finish(&cluster, name).await.phase(), Phase::Succeeded);
    }
    let pods = pod_names(&cluster).await;
    assert_eq!(pods.len(), 2, "{pods:?}");
    assert!(pods.contains(&"a-b-c".to_owned()), "{pods:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_leaves_no_sibling_behind_and_none_unrecorded() {
    let cluster = cluster().await;
    cluster.pods().fail("w-bad", 1, Duration::from_secs(1)).succeed("w-slow", Duration::from_secs(60));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("bad", &[]), task("slow", &[])]})).await;
    cluster.pass(Duration::from_secs(30)).await;
    let midway = cluster.get::<Observatory>("w").await.and_then(|found| found.status).unwrap_or_default();
    assert_eq!(midway.phase(), Phase::Running, "something runs, so it has not failed yet");
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), of(&status, "slow").phase), (Phase::Failed, Phase::Succeeded));
    assert_eq!(status.completion_time, of(&status, "slow").completion_time);
}

#[tokio::test(start_paused = true)]
async fn command_arguments_and_environment_all_reach_the_container() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let full = json!({
        "name": "a", "image": "busybox:1.36", "command": ["sh", "-c"], "args": ["echo $GREETING"],
        "env": [{"name": "GREETING", "value": "hello"}, {"name": "EMPTY"}],
    });
    submit(&cluster, "w", json!({"tasks": [full]})).await;
    let pod = cluster.wait_for_object::<Pod>("w-a").await;
    let container = &pod.spec.expect("a spec").containers[0];
    assert_eq!(container.command.as_deref(), Some(&["sh".to_owned(), "-c".to_owned()][..]));
    assert_eq!(container.args.as_deref(), Some(&["echo $GREETING".to_owned()][..]));
    let env = container.env.as_deref().unwrap_or_default();
    assert_eq!(env[0].value.as_deref(), Some("hello"));
    assert_eq!(env.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_retry_is_a_pod_of_its_own_and_none_starts_twice() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 1, Duration::from_secs(5));
    let _operator = operator(&cluster);
    let flaky = json!({"name": "a", "image": "i", "retry": {"limit": 2}});
    submit(&cluster, "w", json!({"tasks": [flaky, task("b", &["a"])]})).await;
    cluster.pass(Duration::from_secs(3)).await;
    let status = cluster.get::<Observatory>("w").await.and_then(|found| found.status).unwrap_or_default();
    assert_eq!(of(&status, "a").phase, Phase::Running, "an attempt that runs is not pending");
    let status = finish(&cluster, "w").await;
    let a = of(&status, "a");
    assert_eq!((a.phase, a.attempt, a.attempts.len()), (Phase::Failed, 2, 2));
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
    let mut names: Vec<_> = a.attempts.iter().filter_map(|attempt| attempt.pod_name.clone()).collect();
    names.extend(a.pod_name.clone());
    names.sort();
    assert_eq!(names, pod_names(&cluster).await);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_does_something_and_goes() {
    let cluster = cluster().await;
    cluster.pods().succeed("w", Duration::from_secs(3600));
    let operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_until::<Pod>("w-a", |pod| pod.metadata.finalizers.is_some()).await;
    operator.kill().await;
    // Nobody looks: the end of the pod must not be lost with it.
    cluster.delete::<Pod>("w-a").await;
    cluster.pass(Duration::from_secs(60)).await;
    assert_eq!(pod_names(&cluster).await, ["w-a"], "it is held until its end is on record");
    let _operator = support::operator(&cluster);
    let status = finish(&cluster, "w").await;
    assert_eq!(of(&status, "a").reason.as_deref(), Some("PodDeleted"));
    cluster.wait_until_gone::<Pod>("w-a").await;
}

#[test]
fn an_end_costs_as_many_steps_as_tasks_wait_for_it_whatever_the_size() {
    let spec = |name: String, dependencies: Vec<String>| TaskSpec {
        name,
        image: "i".to_owned(),
        dependencies,
        ..TaskSpec::default()
    };
    let tasks: Vec<TaskSpec> = (0..10_000)
        .map(|number: usize| {
            let above = number.checked_sub(1).map(|above| format!("t{above}"));
            spec(format!("t{number}"), above.into_iter().collect())
        })
        .collect();
    let mut engine = Engine::new(&std::sync::Arc::new(Graph::new(&tasks)), 10);
    let before = engine.work();
    while let Some(task) = engine.start_next() {
        engine.succeeded(task);
    }
    assert!(engine.is_over());
    let steps = engine.work() - before;
    assert!(steps <= 20_000, "{steps} steps for 10,000 tasks");
}

#[test]
fn there_is_one_place_where_it_is_decided_what_starts_next() {
    // A second copy of the decision was tested there while the first one ran. Here all that can
    // start a task is in the engine, and nothing else says `start_next`.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut found = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).is_ok_and(|text| starts_tasks(&text)) {
                found.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, ["engine_tests.rs", "work.rs"]);
}

fn starts_tasks(source: &str) -> bool {
    let mut code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| line.contains("start_next()"))
}

#[tokio::test(start_paused = true)]
async fn every_metric_that_the_documents_name_is_there() {
    let cluster = cluster().await;
    let operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    finish(&cluster, "w").await;
    cluster.pass(Duration::from_secs(1)).await;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observatory.md"))
        .expect("the page");
    let text = operator.metrics().encode();
    let names: Vec<&str> = page
        .split('`')
        .filter_map(|word| word.split('{').next())
        .filter(|word| word.starts_with("observatory_"))
        .collect();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        assert!(text.contains(name), "{name} is nowhere in\n{text}");
    }
}
