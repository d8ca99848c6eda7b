//! Retries, time limits, stopping, running again, and what is left behind.

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use steersman_observatory::{Observatory, Phase};
use support::*;

fn with(mut task: Value, fields: Value) -> Value {
    if let (Some(task), Value::Object(fields)) = (task.as_object_mut(), fields) {
        task.extend(fields);
    }
    task
}

#[tokio::test(start_paused = true)]
async fn a_task_is_tried_again_and_every_attempt_is_kept() {
    let cluster = cluster().await;
    // The plain name fails; the attempts after it have a hash in their names.
    cluster.pods().fail("w-a", 7, Duration::from_secs(1)).succeed("w-a-", Duration::from_secs(1));
    let _operator = operator(&cluster);
    let flaky = with(task("a", &[]), json!({"retry": {"limit": 2, "backoff": {"duration": "30s"}}}));
    submit(&cluster, "w", json!({"tasks": [flaky, task("b", &["a"])]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    let a = of(&status, "a");
    assert_eq!((a.attempt, a.exit_code), (1, Some(0)));
    assert_eq!(a.attempts.len(), 1);
    assert_eq!(a.attempts[0].exit_code, Some(7));
    assert_eq!(a.attempts[0].reason.as_deref(), Some("ExitCode"));
    let (first, second) = (a.attempts[0].pod_name.as_deref(), a.pod_name.as_deref());
    assert_eq!(first, Some("w-a"));
    assert_ne!(first, second);
    assert!(cluster.get::<Pod>("w-a").await.is_some(), "the first attempt's log is still there");
    let waited = a
        .start_time
        .as_ref()
        .expect("started")
        .0
        .duration_since(a.attempts[0].completion_time.as_ref().expect("ended").0);
    assert!(waited.as_secs() >= 29, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_keeps_failing_fails_after_its_last_attempt() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 1, Duration::from_secs(1));
    let operator = operator(&cluster);
    let flaky = with(task("a", &[]), json!({"retry": {"limit": 2}}));
    submit(&cluster, "w", json!({"tasks": [flaky]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Failed);
    assert_eq!((of(&status, "a").attempt, of(&status, "a").attempts.len()), (2, 2));
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
    assert!((operator.metric("observatory_workflow_retries_total") - 2.0).abs() < 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_node_gave_up_before_it_started_is_made_again_without_asking() {
    let cluster = steersman_test::Cluster::start().await;
    cluster.create(&steersman_observatory::crd()).await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}});
    cluster.patch_status::<Pod>("w-a", evicted).await;
    let second = cluster
        .wait_for("the second attempt", || async {
            pod_names(&cluster).await.into_iter().find(|name| name.starts_with("w-a-"))
        })
        .await;
    cluster.patch_status::<Pod>(&second, json!({"status": {"phase": "Succeeded"}})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_eq!(of(&status, "a").attempts[0].reason.as_deref(), Some("Evicted"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_ended_and_says_so() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-slow", Duration::from_secs(3600));
    let operator = operator(&cluster);
    let slow = with(task("slow", &[]), json!({"timeout": "10s"}));
    submit(&cluster, "w", json!({"tasks": [slow, task("fine", &[])]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(phases(&status)["slow"], (Phase::Failed, "TimedOut".to_owned()));
    assert_eq!(of(&status, "slow").message.as_deref(), Some("took longer than 10s"));
    assert_eq!(of(&status, "fine").phase, Phase::Succeeded);
    let took = ended(&status, "slow").duration_since(started(&status, "slow")).as_secs();
    assert!((10..=12).contains(&took), "{took}");
    assert!((operator.metric("observatory_job_timeout_total") - 1.0).abs() < 0.5);
    cluster.wait_until_gone::<Pod>("w-slow").await;
}

#[tokio::test(start_paused = true)]
async fn all_attempts_together_have_a_time_limit() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 1, Duration::from_secs(10));
    let _operator = operator(&cluster);
    let flaky = with(
        task("a", &[]),
        json!({"totalTimeout": "60s", "retry": {"limit": 100, "backoff": {"duration": "20s", "factor": 1}}}),
    );
    submit(&cluster, "w", json!({"tasks": [flaky]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(phases(&status)["a"], (Phase::Failed, "TimedOut".to_owned()));
    let length = ended(&status, "a").duration_since(status.start_time.expect("started").0).as_secs();
    assert!((55..=65).contains(&length), "{length}");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_has_a_time_limit() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(3600));
    let _operator = operator(&cluster);
    let spec = json!({"tasks": [task("a", &[]), task("b", &["a"])], "timeouts": {"workflow": "1m"}});
    submit(&cluster, "w", spec).await;
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.reason.as_deref()), (Phase::Failed, Some("TimedOut")));
    assert_eq!(phases(&status)["a"].1, "TimedOut");
    assert_eq!(phases(&status)["b"].1, "TimedOut");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_start_fails_its_task_in_the_end() {
    let cluster = steersman_test::Cluster::start().await;
    cluster.create(&steersman_observatory::crd()).await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    let waiting = json!({"status": {"containerStatuses": [{
        "name": "task", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }]}});
    cluster.patch_status::<Pod>("w-a", waiting).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|s| of(s, "a").reason.as_deref() == Some("ImagePullBackOff"))
        })
        .await;
    cluster.pass(Duration::from_secs(500)).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(phases(&status)["a"], (Phase::Failed, "StartTimeout".to_owned()));
    assert_eq!(of(&status, "a").message.as_deref(), Some("did not start within 10m: no such image"));
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_running_tasks_finish_and_terminating_does_not() {
    let cluster = cluster().await;
    cluster.pods().succeed("w", Duration::from_secs(60));
    let _operator = operator(&cluster);
    for (name, shutdown) in [("w1", "Stop"), ("w2", "Terminate")] {
        submit(&cluster, name, json!({"tasks": [task("a", &[]), task("b", &["a"])]})).await;
        let pod = format!("{name}-a");
        cluster
            .wait_until::<Pod>(&pod, |pod| {
                pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            })
            .await;
        cluster.patch::<Observatory>(name, json!({"spec": {"shutdown": shutdown}})).await;
    }
    let stopped = finish(&cluster, "w1").await;
    assert_eq!((stopped.phase(), stopped.reason.as_deref()), (Phase::Failed, Some("Stopped")));
    assert_eq!(of(&stopped, "a").phase, Phase::Succeeded);
    assert_eq!(phases(&stopped)["b"], (Phase::Failed, "Stopped".to_owned()));
    let terminated = finish(&cluster, "w2").await;
    assert_eq!(phases(&terminated)["a"], (Phase::Failed, "Terminated".to_owned()));
    assert_eq!(cluster.get::<Pod>("w2-b").await.map(|pod| pod.name_any()), None);
}

#[tokio::test(start_paused = true)]
async fn running_again_from_failed_keeps_what_succeeded() {
    let cluster = cluster().await;
    cluster.pods().fail("w-b", 1, Duration::from_secs(1));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"])]})).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Failed);
    cluster.pods().succeed("w-b", Duration::from_secs(1));
    cluster.patch::<Observatory>("w", json!({"spec": {"rerun": {"id": "1"}}})).await;
    let done = cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| status.phase() == Phase::Succeeded)
        })
        .await;
    let status = done.status.expect("a status");
    assert_eq!(of(&status, "a").attempt, 0, "what succeeded is not done again");
    assert_eq!((of(&status, "b").attempt, of(&status, "b").attempts.len()), (1, 1));
    assert_eq!(of(&status, "c").attempt, 0);
    assert_eq!(status.rerun_id.as_deref(), Some("1"));
    assert_eq!(cluster.list::<Pod>().await.len(), 4);
    // The same id does nothing more.
    cluster.pass(Duration::from_secs(60)).await;
    assert_eq!(cluster.list::<Pod>().await.len(), 4);
    // A task that succeeded, and what was built on it.
    let again = json!({"spec": {"rerun": {"id": "2", "mode": "Tasks", "tasks": ["b"]}}});
    cluster.patch::<Observatory>("w", again).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            let status = found.status.as_ref();
            status.is_some_and(|s| s.rerun_id.as_deref() == Some("2") && s.phase() == Phase::Succeeded)
        })
        .await;
    assert_eq!(cluster.list::<Pod>().await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_finished_workflow_goes_when_its_time_is_over() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])], "ttl": {"afterSuccess": "1h"}})).await;
    finish(&cluster, "w").await;
    cluster.pass(Duration::from_secs(3000)).await;
    assert!(cluster.get::<Observatory>("w").await.is_some());
    cluster.pass(Duration::from_secs(700)).await;
    cluster.wait_until_gone::<Observatory>("w").await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_to_be_kept_go() {
    let cluster = cluster().await;
    cluster.pods().fail("w-bad", 1, Duration::from_secs(1));
    let _operator = operator(&cluster);
    let spec = json!({"tasks": [task("a", &[]), task("bad", &["a"])], "podGC": {"strategy": "OnSuccess"}});
    submit(&cluster, "w", spec).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Failed);
    cluster.wait_until_gone::<Pod>("w-a").await;
    assert_eq!(pod_names(&cluster).await, ["w-bad"]);
    let kept = cluster.get::<Observatory>("w").await.and_then(|found| found.status).expect("a status");
    assert_eq!(of(&kept, "a").phase, Phase::Succeeded, "its end is still known");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_deletes_is_an_error_and_not_run_again_unasked() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(600));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    cluster.delete::<Pod>("w-a").await;
    let status = finish(&cluster, "w").await;
    assert_eq!(phases(&status)["a"], (Phase::Failed, "PodDeleted".to_owned()));
    cluster.wait_until_gone::<Pod>("w-a").await;
}

#[tokio::test(start_paused = true)]
async fn people_are_told_by_events() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 2, Duration::from_secs(1));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    finish(&cluster, "w").await;
    cluster
        .wait_for("the events", || async {
            let events = cluster.list::<Event>().await;
            let reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
            ["WorkflowAccepted", "TaskFailed", "WorkflowFailed"]
                .iter()
                .all(|wanted| reasons.contains(wanted))
                .then_some(())
        })
        .await;
}
