use super::plan::{INDEX, Plan, Verdict, count, ended, plan, pod, report, stays};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn job(spec: &Value) -> Job {
    let mut whole = json!({"backoffLimit": 6, "parallelism": 1, "completionMode": "NonIndexed", "suspend": false,
        "template": {"metadata": {"labels": {"job-name": "j"}}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}});
    for (key, value) in spec.as_object().expect("fields") {
        whole[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "n", "uid": "job"}, "spec": whole,
        "status": {"startTime": "2026-01-01T00:59:00Z"}}))
    .expect("a job")
}

/// A pod as `name phase [index]`, with failures that are long past.
fn pods(list: &[&str]) -> Vec<Arc<Pod>> {
    let made = list.iter().map(|text| {
        let mut words = text.split(' ');
        let (name, phase) = (words.next().expect("a name"), words.next().expect("a phase"));
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": []}, "status": {
            "phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}});
        if matches!(phase, "Failed" | "Succeeded") {
            pod["status"]["containerStatuses"] = json!([{"name": "c", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}}]);
        }
        if phase == "Leaving" {
            pod["status"]["phase"] = "Running".into();
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        if let Some(index) = words.next() {
            pod["metadata"]["annotations"] = json!({INDEX: index});
        }
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    });
    made.collect()
}

fn planned(job: &Job, list: &[&str]) -> Plan {
    plan(job, &count(job, pods(list)), now())
}

fn deleted(plan: &Plan) -> Vec<String> {
    plan.delete.iter().map(|pod| pod.name_any()).collect()
}

fn reported(job: &Job, list: &[&str]) -> JobStatus {
    let count = count(job, pods(list));
    report(job, plan(job, &count, now()).verdict, &count, now())
}

fn conditions(status: &JobStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten();
    all.map(|one| format!("{}={} {}", one.type_, one.status, one.reason.as_deref().unwrap_or("-"))).collect()
}

#[test]
fn as_many_pods_run_as_may_and_as_are_still_needed() {
    let cases: [(Value, &[&str], usize); 7] = [
        (json!({"parallelism": 3, "completions": 5}), &[], 3),
        (json!({"parallelism": 3, "completions": 2}), &[], 2),
        (json!({"parallelism": 3, "completions": 5}), &["a Running", "b Succeeded"], 2),
        (
            json!({"parallelism": 3, "completions": 5}),
            &["a Succeeded", "b Succeeded", "c Succeeded", "d Running"],
            1,
        ),
        (json!({"parallelism": 3}), &["a Running"], 2),
        (json!({"parallelism": 3}), &["a Running", "b Succeeded"], 0),
        (json!({"parallelism": 0, "completions": 1}), &[], 0),
    ];
    for (spec, list, expected) in cases {
        let plan = planned(&job(&spec), list);
        assert_eq!((plan.create.len(), deleted(&plan).len()), (expected, 0), "{spec} {list:?}");
        assert_eq!(plan.verdict, Verdict::Open);
    }
}

#[test]
fn too_many_pods_are_deleted_and_a_suspended_job_keeps_none() {
    let running: &[&str] = &["a Pending", "b Running", "c Running"];
    assert_eq!(deleted(&planned(&job(&json!({"parallelism": 2, "completions": 9})), running)), ["a"]);
    let suspended = job(&json!({"parallelism": 2, "completions": 9, "suspend": true}));
    assert_eq!(deleted(&planned(&suspended, running)).len(), 3);
    let status = reported(&suspended, &[]);
    assert_eq!(conditions(&status), ["Suspended=True JobSuspended"]);
    assert_eq!(status.start_time, None, "the clock of a suspended Job stands still");
    let resumed = Job { status: Some(status), ..job(&json!({"completions": 9})) };
    let status = reported(&resumed, &[]);
    assert_eq!(conditions(&status), ["Suspended=False JobResumed"]);
    assert_eq!(status.start_time.map(|time| time.0), Some(now()));
}

#[test]
fn a_leaving_pod_is_replaced_at_once_unless_the_job_waits_for_its_end() {
    let spec = json!({"parallelism": 1, "completions": 1});
    assert_eq!(planned(&job(&spec), &["a Leaving"]).create.len(), 1);
    let waits = json!({"parallelism": 1, "completions": 1, "podReplacementPolicy": "Failed"});
    assert_eq!(planned(&job(&waits), &["a Leaving"]).create.len(), 0);
}

#[test]
fn a_job_is_complete_when_enough_succeeded_and_none_runs() {
    let two = job(&json!({"parallelism": 2, "completions": 2}));
    let status = reported(&two, &["a Succeeded", "b Succeeded"]);
    assert_eq!(
        conditions(&status),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert_eq!((status.succeeded, status.active, status.completion_time.is_some()), (Some(2), None, true));
    let leaving = reported(&two, &["a Succeeded", "b Succeeded", "c Leaving"]);
    assert_eq!(
        conditions(&leaving),
        ["SuccessCriteriaMet=True CompletionsReached"],
        "not before all pods are gone"
    );
    let any = job(&json!({"parallelism": 2}));
    assert_eq!(planned(&any, &["a Succeeded", "b Running"]).verdict, Verdict::Open);
    assert_eq!(planned(&any, &["a Succeeded", "b Failed"]).verdict, Verdict::Complete);
}

#[test]
fn a_job_fails_after_too_many_failures_and_its_pods_go_first() {
    let strict = job(&json!({"parallelism": 2, "completions": 2, "backoffLimit": 1}));
    assert_eq!(planned(&strict, &["a Failed"]).verdict, Verdict::Open);
    let plan = planned(&strict, &["a Failed", "b Failed", "c Running"]);
    assert!(matches!(plan.verdict, Verdict::Failed("BackoffLimitExceeded", _)), "{plan:?}");
    assert_eq!(deleted(&plan), ["c"]);
    let status = reported(&strict, &["a Failed", "b Failed", "c Leaving"]);
    assert_eq!(conditions(&status), ["FailureTarget=True BackoffLimitExceeded"]);
    let later = Job { status: Some(status), ..strict };
    let status = reported(&later, &["a Failed", "b Failed"]);
    assert_eq!(
        conditions(&status),
        ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]
    );
    assert_eq!(status.failed, Some(2));
    assert_eq!(ended(&Job { status: Some(status), ..later }), Some(now()));
}

#[test]
fn failures_are_waited_for_longer_and_longer() {
    let patient = job(&json!({"completions": 1, "backoffLimit": 100}));
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    for (failures, wait) in [(1_usize, 10), (2, 20), (3, 40), (20, 600)] {
        let list: Vec<String> = (0..failures).map(|number| format!("p{number} Failed")).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let count = count(&patient, pods(&list));
        let plan = plan(&patient, &count, at("2026-01-01T00:00:01Z"));
        assert_eq!(plan.next, Some(SignedDuration::from_secs(wait - 1)), "{failures}");
        assert!(plan.create.is_empty());
        let plan = super::plan::plan(&patient, &count, at("2026-01-01T00:10:01Z"));
        assert_eq!(plan.create.len(), 1, "{failures}");
    }
}

#[test]
fn a_job_fails_at_its_deadline_and_is_looked_at_then() {
    let hasty = job(&json!({"completions": 1, "activeDeadlineSeconds": 90}));
    assert_eq!(planned(&hasty, &["a Running"]).next, Some(SignedDuration::from_secs(30)));
    let late = job(&json!({"completions": 1, "activeDeadlineSeconds": 60}));
    let plan = planned(&late, &["a Running"]);
    assert!(matches!(plan.verdict, Verdict::Failed("DeadlineExceeded", _)), "{plan:?}");
    assert_eq!(deleted(&plan), ["a"]);
}

#[test]
fn each_index_is_run_until_it_succeeds() {
    let indexed = job(&json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"}));
    assert_eq!(planned(&indexed, &[]).create, [Some(0), Some(1)]);
    let list = ["a Succeeded 0", "b Failed 1", "c Running 2", "d Running 2", "e Running 9"];
    let plan = planned(&indexed, &list);
    assert_eq!(plan.create, [Some(1)]);
    let mut gone = deleted(&plan);
    gone.sort();
    assert_eq!(
        (gone.len(), gone.last().map(String::as_str)),
        (2, Some("e")),
        "one of the two with index 2, and index 9"
    );
    let status = reported(&indexed, &list);
    assert_eq!((status.succeeded, status.completed_indexes.as_deref()), (Some(1), Some("0")));
    let remembered = Job {
        status: Some(JobStatus { completed_indexes: Some("0,2-3".into()), ..JobStatus::default() }),
        ..indexed
    };
    assert_eq!(planned(&remembered, &[]).create, [Some(1)], "what is done stays done when its pods are gone");
    assert_eq!(planned(&remembered, &["z Succeeded 1"]).verdict, Verdict::Complete);
}

#[test]
fn an_index_with_its_own_limit_does_not_fail_the_others() {
    let spec = json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "backoffLimit": i32::MAX});
    let each = job(&spec);
    let plan = planned(&each, &["a Failed 0", "b Running 1"]);
    assert_eq!((plan.verdict, plan.create.len()), (Verdict::Open, 0));
    let plan = planned(&each, &["a Failed 0", "b Succeeded 1"]);
    assert!(matches!(plan.verdict, Verdict::Failed("FailedIndexes", _)), "{plan:?}");
    assert_eq!(reported(&each, &["a Failed 0", "b Running 1"]).failed_indexes.as_deref(), Some("0"));
}

#[test]
fn an_ended_job_stays_for_its_time_to_live() {
    let mut done = job(&json!({"completions": 1, "ttlSecondsAfterFinished": 100}));
    let status = reported(&done, &["a Succeeded"]);
    done.status = Some(status);
    let end = ended(&done).expect("ended");
    assert_eq!(stays(&done, end, now() + SignedDuration::from_secs(30)), Some(SignedDuration::from_secs(70)));
    assert_eq!(stays(&job(&json!({})), end, now()), None);
}

#[test]
fn a_pod_is_made_from_the_template_and_knows_its_index() {
    let plain = pod(&job(&json!({})), None);
    assert_eq!(plain.metadata.generate_name.as_deref(), Some("j-"));
    assert_eq!(plain.labels()["job-name"], "j");
    assert_eq!(plain.owner_references()[0].controller, Some(true));
    let third = pod(&job(&json!({"completionMode": "Indexed", "completions": 3})), Some(2));
    assert_eq!(third.metadata.generate_name.as_deref(), Some("j-2-"));
    assert_eq!(third.annotations()[INDEX], "2");
    let spec = third.spec.expect("a spec");
    assert_eq!(spec.hostname.as_deref(), Some("j-2"));
    assert_eq!(spec.containers[0].env.as_ref().map(|env| env[0].name.as_str()), Some("JOB_COMPLETION_INDEX"));
}
