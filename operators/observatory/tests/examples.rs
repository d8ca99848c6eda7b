//! The files of `examples/workflows`, and that they end as they say.

mod support;

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steersman_observatory::{Observatory, ObservatoryStatus, Phase, cli};
use steersman_test::Cluster;
use support::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.yaml"))).expect("the example")
}

async fn begin(cluster: &Cluster, name: &str) {
    let options = cli::RunOptions { namespace: "default".to_owned(), name: None };
    cli::run(&cluster.client(), &text(name), &options).await.expect("it is accepted");
}

async fn outcome(cluster: &Cluster, name: &str) -> ObservatoryStatus {
    begin(cluster, name).await;
    let done = cli::wait(&cluster.client(), "default", name).await.expect("it ends");
    done.status.unwrap_or_default()
}

fn seconds(status: &ObservatoryStatus, task: &str) -> i64 {
    ended(status, task).duration_since(started(status, task)).as_secs()
}

#[test]
fn no_example_has_a_problem() {
    let files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    assert!(files.len() >= 10);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the example");
        assert_eq!(cli::lint(&text), Vec::new(), "{}", file.display());
    }
}

#[tokio::test(start_paused = true)]
async fn diamond_joins_both_branches() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "diamond").await;
    assert_eq!((status.phase(), status.progress.as_deref()), (Phase::Succeeded, Some("4/4")));
    assert!(started(&status, "d") >= ended(&status, "b").max(ended(&status, "c")));
}

#[tokio::test(start_paused = true)]
async fn multiroot_starts_both_roots_at_once() {
    let cluster = cluster().await;
    cluster.pods().succeed("multiroot-b", Duration::from_secs(30));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "multiroot").await;
    assert_eq!(started(&status, "a"), started(&status, "b"));
    assert!(ended(&status, "c") < ended(&status, "b"), "c waits for a alone");
    assert!(started(&status, "d") >= ended(&status, "b"));
}

#[tokio::test(start_paused = true)]
async fn fail_fast_starts_nothing_after_the_failure() {
    let cluster = cluster().await;
    cluster
        .pods()
        .fail("fail-fast-bad", 1, Duration::from_secs(1))
        .succeed("fail-fast-slow", Duration::from_secs(5));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "fail-fast").await;
    assert_eq!(status.phase(), Phase::Failed);
    assert_eq!(of(&status, "slow").phase, Phase::Succeeded, "what runs goes on");
    assert_eq!(phases(&status)["after-slow"], (Phase::Failed, "NotStarted".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn no_fail_fast_runs_the_other_branch_to_its_end() {
    let cluster = cluster().await;
    cluster
        .pods()
        .fail("no-fail-fast-bad", 1, Duration::from_secs(1))
        .succeed("no-fail-fast-slow", Duration::from_secs(5));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "no-fail-fast").await;
    assert_eq!(status.phase(), Phase::Failed);
    assert_eq!(of(&status, "bad").attempt, 2, "three attempts were made");
    assert_eq!(of(&status, "after-slow").phase, Phase::Succeeded);
    assert_eq!(phases(&status)["after-bad"].1, "UpstreamFailed");
}

#[tokio::test(start_paused = true)]
async fn task_timeout_ends_b_and_not_a() {
    let cluster = cluster().await;
    cluster.pods().succeed("task-timeout", Duration::from_secs(15));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "task-timeout").await;
    assert_eq!((of(&status, "a").phase, seconds(&status, "a")), (Phase::Succeeded, 15));
    assert_eq!(phases(&status)["b"], (Phase::Failed, "TimedOut".to_owned()));
    assert!((10..=11).contains(&seconds(&status, "b")));
}

#[tokio::test(start_paused = true)]
async fn retry_backoff_gives_up_after_its_minute() {
    let cluster = cluster().await;
    cluster.pods().fail("retry-backoff", 1, Duration::from_millis(100));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "retry-backoff").await;
    assert_eq!(status.phase(), Phase::Failed);
    // 1 + 2 + 4 + 8 + 16 seconds of waiting fit into a minute, 32 more do not.
    assert_eq!(of(&status, "fails").attempt, 5);
}

#[tokio::test(start_paused = true)]
async fn retry_container_goes_on_until_it_succeeds() {
    let cluster = cluster().await;
    cluster.pods().fail("retry-container", 1, Duration::from_secs(1));
    let _operator = operator(&cluster);
    begin(&cluster, "retry-container").await;
    cluster
        .wait_until::<Observatory>("retry-container", |found| {
            found.status.as_ref().is_some_and(|status| of(status, "flaky").attempt >= 3)
        })
        .await;
    cluster.pods().succeed("retry-container", Duration::from_secs(1));
    let status = finish(&cluster, "retry-container").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    assert!(of(&status, "flaky").attempts.len() >= 3);
}

#[tokio::test(start_paused = true)]
async fn parallelism_limit_takes_five_turns() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "parallelism-limit").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    let whole =
        status.completion_time.expect("ended").0.duration_since(status.start_time.expect("started").0);
    assert!((5..=7).contains(&whole.as_secs()), "{whole:?}");
}

#[tokio::test(start_paused = true)]
async fn workflow_timeout_ends_everything() {
    let cluster = cluster().await;
    cluster.pods().succeed("workflow-timeout", Duration::from_secs(3600));
    let _operator = operator(&cluster);
    let status = outcome(&cluster, "workflow-timeout").await;
    assert_eq!((status.phase(), status.reason.as_deref()), (Phase::Failed, Some("TimedOut")));
    assert!((10..=11).contains(&seconds(&status, "sleep")));
}

#[tokio::test(start_paused = true)]
async fn pod_gc_keeps_what_failed() {
    let cluster = cluster().await;
    cluster.pods().fail("pod-gc-bad", 1, Duration::from_secs(1));
    let _operator = operator(&cluster);
    assert_eq!(outcome(&cluster, "pod-gc").await.phase(), Phase::Failed);
    cluster.wait_until_gone::<Pod>("pod-gc-good").await;
    assert_eq!(pod_names(&cluster).await, ["pod-gc-bad"]);
}

#[tokio::test(start_paused = true)]
async fn ttl_takes_the_workflow_away() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    assert_eq!(outcome(&cluster, "ttl").await.phase(), Phase::Succeeded);
    cluster.wait_until_gone::<Observatory>("ttl").await;
}

#[tokio::test(start_paused = true)]
async fn cron_schedules_count_a_common_minute_once() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    begin(&cluster, "cron-schedules").await;
    cluster.pass(Duration::from_secs(15 * 60 + 30)).await;
    let runs = cluster.list::<Observatory>().await.into_iter().filter(|run| !run.spec.is_scheduled());
    // 3, 5, 6, 9, 10, 12, 15.
    assert_eq!(runs.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn pod_template_reaches_the_pods() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    assert_eq!(outcome(&cluster, "pod-template").await.phase(), Phase::Succeeded);
    let pod = cluster.get::<Pod>("pod-template-scratch").await.expect("the pod");
    assert_eq!(pod.labels().get("team").map(String::as_str), Some("data"));
    let spec = pod.spec.expect("a spec");
    let context = spec.security_context.expect("a context");
    assert_eq!((context.run_as_user, context.run_as_non_root), (Some(1000), Some(true)));
    assert!(spec.containers[0].volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn commands_stop_retry_and_explain() {
    let cluster = cluster().await;
    cluster.pods().succeed("diamond", Duration::from_secs(60));
    let _operator = operator(&cluster);
    let client = cluster.client();
    begin(&cluster, "diamond").await;
    cluster.wait_for_object::<Pod>("diamond-a").await;
    cluster.pass(Duration::from_secs(2)).await;
    let seen = cli::get(&client, "default", "diamond").await.expect("it is there");
    assert_eq!(
        cli::explain(&seen, "d").expect("a task"),
        "Task d is pending.\nIt waits for b (pending), c (pending).\n"
    );
    let early = cli::retry(&client, "default", "diamond", Default::default(), &[]).await;
    assert!(early.expect_err("it runs").to_string().contains("has not ended"));
    cli::stop(&client, "default", "diamond", steersman_observatory::types::Shutdown::Terminate)
        .await
        .expect("it is stopped");
    let stopped = cli::wait(&client, "default", "diamond").await.expect("it ends");
    assert_eq!(stopped.status.unwrap_or_default().reason.as_deref(), Some("Terminated"));
    cluster.pods().succeed("diamond", Duration::from_secs(1));
    cli::retry(&client, "default", "diamond", Default::default(), &[]).await.expect("it is begun again");
    cluster
        .wait_until::<Observatory>("diamond", |found| {
            found.status.as_ref().is_some_and(|status| status.phase() == Phase::Succeeded)
        })
        .await;
    // What is to run again has not ended, even where nothing of it has begun yet.
    let all = steersman_observatory::types::RerunMode::All;
    cli::retry(&client, "default", "diamond", all, &[]).await.expect("it is begun once more");
    let twice = cli::retry(&client, "default", "diamond", all, &[]).await;
    assert!(twice.expect_err("it runs").to_string().contains("has not ended"));
    cli::stop(&client, "default", "diamond", steersman_observatory::types::Shutdown::Terminate)
        .await
        .expect("it is stopped at once");
    let stopped = cli::wait(&client, "default", "diamond").await.expect("it ends");
    assert_eq!(stopped.status.unwrap_or_default().reason.as_deref(), Some("Terminated"));
    let unknown =
        cli::logs(&client, "default", "diamond", Some("x"), &Default::default(), |_, _, _| {}).await;
    assert!(unknown.expect_err("no such task").to_string().contains("has no task \"x\""));
    let missing = cli::get(&client, "default", "nothing").await.expect_err("it is not there");
    assert_eq!(missing.to_string(), "there is no workflow default/nothing; see `steer workflow list`");
}
