//! The life of a Resource in a cluster inside the test, under virtual time.

mod support;

use std::time::Duration;

use serde_json::json;
use steersman_infra::action::{ActionError, Registry};
use steersman_infra::types::{State, TRIGGER};
use steersman_infra::{History, OperatorController, Options, Resource, ResourceType, controllers};
use steersman_test::Cluster;
use support::{World, box_type, cluster, create_box, operate, operate_with};

fn plugins(world: &World) -> Registry {
    Registry::new().with(world.clone())
}

/// A cluster that knows the type `Box`, an empty world and an empty history.
async fn scene() -> (Cluster, World, History) {
    let cluster = cluster().await;
    box_type(&cluster).await;
    (cluster, World::default(), History::memory().expect("a history"))
}

fn is_ready(resource: &Resource) -> bool {
    resource.state() == State::Ready
}

#[tokio::test(start_paused = true)]
async fn a_resource_becomes_ready_with_defaults_outputs_and_history() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    let status = ready.status.clone().expect("a status");
    assert_eq!(status.message.as_deref(), Some("Reconciliation successful"));
    assert_eq!((status.last_reconciled_generation, status.attempt), (Some(1), None));
    assert_eq!(serde_json::to_value(&status.outputs).expect("outputs"), json!({"size": 1}));
    assert!(world.lock().things.values().eq([&json!({"size": 1})]));
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    assert_eq!(entries.len(), 1);
    let record = &entries[0].1;
    assert_eq!((record.success, record.phase.as_str(), record.created), (true, "completed", 1));
    assert_eq!((record.trigger.as_str(), record.plan.as_deref()), ("initial", Some("1 to create")));
    let known = cluster.wait_until::<ResourceType>("box.v1", |known| known.status.is_some()).await;
    assert_eq!(known.status.expect("a status").conditions[0].status, "True");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_applied_at_once_and_the_same_wish_is_not_applied_again() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({"size": 1})).await;
    cluster.wait_until::<Resource>("box.one", is_ready).await;
    let began = (cluster.clock())();
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 7}}})).await;
    let changed = cluster
        .wait_until::<Resource>("box.one", |it| {
            is_ready(it) && it.status.as_ref().and_then(|status| status.last_reconciled_generation) == Some(2)
        })
        .await;
    assert!((cluster.clock())().duration_since(began).as_secs() < 2);
    assert!(world.lock().things.values().eq([&json!({"size": 7})]));
    assert_eq!(history.of(changed.id().expect("an id"), 10, None).await.expect("entries").len(), 2);
    cluster.pass(Duration::from_secs(3600)).await;
    assert_eq!(world.lock().applies, 2, "an hour of drift checks finds nothing to do");
    assert!(world.lock().drift_checks >= 10);
}

#[tokio::test(start_paused = true)]
async fn drift_is_found_within_five_minutes_and_repaired() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    let one = create_box(&cluster, "one", json!({"size": 3})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    world.lock().things.clear();
    cluster.pass(Duration::from_secs(310)).await;
    cluster.wait_for("the repair", || async { (!world.lock().things.is_empty()).then_some(()) }).await;
    cluster.wait_until::<Resource>("box.one", is_ready).await;
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    assert_eq!((entries[0].1.trigger.as_str(), entries[0].1.drift), ("drift", true));
    assert_eq!(one.metadata.generation, Some(1));
}

/// Everything that is looked at again and again hides what was forgotten; here it is not.
#[tokio::test(start_paused = true)]
async fn nothing_relies_on_everything_being_looked_at_again() {
    let (cluster, world, history) = scene().await;
    let settings = OperatorController {
        reconcile_interval: Duration::from_secs(30 * 86_400),
        drift_interval: Duration::from_secs(10),
        ..OperatorController::default()
    };
    let _operator = operate_with(&cluster, plugins(&world), &history, settings);
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    for name in &names {
        create_box(&cluster, name, json!({})).await;
    }
    for round in 0..6 {
        // Done at once, or after some questions, and not at the first attempt.
        world.lock().questions = round % 3;
        world.lock().failures = vec![ActionError::transient("no luck"); if round == 4 { 3 } else { 0 }];
        cluster
            .wait_for("everything to be as it should", || async {
                let all = cluster.list::<Resource>().await;
                (all.iter().all(is_ready) && world.lock().things.len() == names.len()).then_some(())
            })
            .await;
        world.lock().things.clear();
        let began = (cluster.clock())();
        cluster
            .wait_for("the repair of everything", || async {
                (world.lock().things.len() == names.len()).then_some(())
            })
            .await;
        let took = (cluster.clock())().duration_since(began).as_secs();
        let longest = if round == 4 { 120 } else { 60 };
        assert!(took <= longest, "round {round}: a check every 10 s, and yet {took} s");
    }
    let before = world.lock().drift_checks;
    cluster.pass(Duration::from_secs(1000)).await;
    let checks = world.lock().drift_checks - before;
    assert!((8 * 95..=8 * 101).contains(&checks), "each every 10 s for 1000 s: {checks}");
}

#[tokio::test(start_paused = true)]
async fn a_type_and_a_resource_say_how_often_drift_is_looked_for() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    for name in ["one", "calm"] {
        create_box(&cluster, name, json!({})).await;
        cluster.wait_until::<Resource>(&format!("box.{name}"), is_ready).await;
    }
    let never = json!({"spec": {"metadata": {"drift_interval_seconds": 0}}});
    cluster.patch::<Resource>("box.calm", never).await;
    cluster
        .wait_until::<Resource>("box.calm", |it| {
            is_ready(it) && it.status.as_ref().and_then(|it| it.last_reconciled_generation) == Some(2)
        })
        .await;
    let checks = |of: &str| world.lock().calls.iter().filter(|call| **call == format!("drift {of}")).count();
    cluster.pass(Duration::from_secs(1000)).await;
    assert_eq!((checks("one"), checks("calm")), (3, 0), "every five minutes, and never");
    cluster
        .patch::<ResourceType>("box.v1", json!({"spec": {"metadata": {"drift_interval_seconds": 10}}}))
        .await;
    let before = checks("one");
    cluster.pass(Duration::from_secs(1000)).await;
    let more = checks("one") - before;
    assert!((90..=101).contains(&more), "every ten seconds from now on: {more}");
    assert_eq!(checks("calm"), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_after_1_2_and_4_minutes_and_forgotten_after_success() {
    let (cluster, world, history) = scene().await;
    world.lock().failures = vec![ActionError::transient("no luck"); 3];
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    assert_eq!(ready.status.as_ref().map(|status| status.failures), Some(0));
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[3].1.error_message.as_deref(), Some("no luck"));
    for (pair, minutes) in entries.windows(2).zip([4.0, 2.0, 1.0]) {
        let waited = pair[0].1.time.duration_since(pair[1].1.time).as_secs_f64() / 60.0;
        assert!((waited / minutes - 1.0).abs() < 0.12, "{waited} instead of {minutes}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_mends_waits_at_the_cap_until_asked_for() {
    let (cluster, world, history) = scene().await;
    world.lock().failures = vec![ActionError::permanent("forbidden")];
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Failed).await;
    cluster.pass(Duration::from_secs(1000 * 60)).await;
    assert_eq!(world.lock().applies, 1);
    let ask = json!({"metadata": {"annotations": {TRIGGER: "now"}}});
    cluster.patch::<Resource>("box.one", ask).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    assert_eq!(entries[0].1.trigger, "manual");
}

#[tokio::test(start_paused = true)]
async fn long_actions_hold_no_worker() {
    let (cluster, world, history) = scene().await;
    world.lock().questions = 20;
    let _operator = operate(&cluster, plugins(&world), &history);
    for index in 0..20 {
        create_box(&cluster, &format!("n{index}"), json!({})).await;
    }
    cluster
        .wait_for("all to begin, although five workers are all there are", || async {
            (world.lock().begun.len() == 20).then_some(())
        })
        .await;
    assert!(cluster.list::<Resource>().await.iter().all(|it| it.state() == State::Reconciling));
    cluster.pass(Duration::from_secs(3600)).await;
    assert!(cluster.list::<Resource>().await.iter().all(is_ready));
    assert!(world.lock().begun.values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn deleting_destroys_first_and_frees_the_name_and_history_stays() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    world.lock().failures = vec![ActionError::transient("busy")];
    cluster.delete::<Resource>("box.one").await;
    let leaving = cluster
        .wait_until::<Resource>("box.one", |it| it.status.as_ref().is_some_and(|status| status.failures == 1))
        .await;
    assert_eq!(leaving.state(), State::Deleting);
    assert_eq!(world.lock().things.len(), 1);
    cluster.wait_until_gone::<Resource>("box.one").await;
    assert!(world.lock().things.is_empty());
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    let seen: Vec<(&str, bool)> = entries.iter().map(|(_, it)| (it.trigger.as_str(), it.success)).collect();
    assert_eq!(seen, [("deletion", true), ("deletion", false), ("initial", true)]);
    create_box(&cluster, "one", json!({})).await;
    cluster.wait_until::<Resource>("box.one", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_while_an_action_is_under_way_cancels_it() {
    let (cluster, world, history) = scene().await;
    world.lock().questions = 1000;
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    cluster
        .wait_until::<Resource>("box.one", |it| {
            it.status
                .as_ref()
                .and_then(|status| status.attempt.as_ref())
                .is_some_and(|attempt| attempt.checkpoint.is_some())
        })
        .await;
    world.lock().questions = 0;
    world.lock().cancel_failures = 2;
    let began = (cluster.clock())();
    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    assert_eq!(world.lock().cancelled.len(), 1);
    assert_eq!(world.lock().cancels, 3, "not asked again before it is time");
    assert!((cluster.clock())().duration_since(began).as_secs() >= 15, "5 s and 10 s are waited");
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_its_type_waits_for_it_and_one_that_does_not_fit_says_why() {
    let (cluster, world, history) =
        (cluster().await, World::default(), History::memory().expect("a history"));
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({"size": 0})).await;
    let failed = cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Failed).await;
    assert_eq!(
        failed.status.and_then(|status| status.message).as_deref(),
        Some("Resource type Box/v1 not found")
    );
    box_type(&cluster).await;
    let message = "Spec validation failed: size: 0 is less than the minimum of 1";
    cluster
        .wait_until::<Resource>("box.one", |it| {
            it.status.as_ref().and_then(|status| status.message.as_deref()) == Some(message)
        })
        .await;
    assert_eq!(world.lock().applies, 0);
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 2}}})).await;
    cluster.wait_until::<Resource>("box.one", is_ready).await;
    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_found_out_about_and_nothing_is_begun_twice() {
    let (cluster, world, history) = scene().await;
    world.lock().failures = vec![ActionError::Unknown("the answer is missing".into())];
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    assert!(world.lock().begun.values().all(|times| *times == 1));
    assert_eq!(world.lock().begun.len(), 1);
    assert_eq!(history.of(ready.id().expect("an id"), 10, None).await.expect("entries").len(), 1);
}

/// Kills the operator after its n-th write, for every n, and starts another: whatever was under
/// way is finished once.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_loses_nothing_and_does_nothing_twice() {
    for questions in [0, 2] {
        for writes in 0..9 {
            let (cluster, world) = (cluster().await, World::default());
            let history = History::memory().expect("a history");
            box_type(&cluster).await;
            world.lock().questions = questions;
            cluster.faults().crash_after(writes);
            let first = operate(&cluster, plugins(&world), &history);
            create_box(&cluster, "one", json!({"size": 4})).await;
            tokio::select! {
                () = cluster.faults().crashed() => {}
                () = cluster.pass(Duration::from_secs(120)) => {}
            }
            first.kill().await;
            cluster.faults().clear();
            let second = operate(&cluster, plugins(&world), &history);
            let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
            {
                let state = world.lock();
                let begun: Vec<u32> = state.begun.values().copied().collect();
                assert_eq!(begun, [1], "after {writes} writes with {questions} questions");
                assert!(state.things.values().eq([&json!({"size": 4})]));
            }
            let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
            assert_eq!(entries.len(), 1, "after {writes} writes with {questions} questions");
            cluster.delete::<Resource>("box.one").await;
            cluster.wait_until_gone::<Resource>("box.one").await;
            assert!(world.lock().things.is_empty());
            second.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_errors_and_lost_answers_of_the_server_do_no_harm() {
    let (cluster, world, history) = scene().await;
    let _operator = operate(&cluster, plugins(&world), &history);
    for (index, fault) in ["before", "after", "conflict"].into_iter().enumerate() {
        match fault {
            "before" => cluster.faults().fail_before(3),
            "after" => cluster.faults().fail_after_write(4),
            _ => cluster.faults().conflict_once::<Resource>(),
        }
        create_box(&cluster, fault, json!({})).await;
        cluster.wait_until::<Resource>(&format!("box.{fault}"), is_ready).await;
        cluster.faults().clear();
        assert_eq!(world.lock().things.len(), index + 1, "{fault}");
        assert!(world.lock().begun.values().all(|times| *times == 1), "{fault}");
    }
}

/// With one worker, which is busy until everything else is due.
#[tokio::test(start_paused = true)]
async fn a_user_goes_before_what_failed_and_that_before_drift_checks() {
    let (cluster, world, history) = scene().await;
    let settings = OperatorController {
        max_concurrent_reconciles: 1,
        drift_interval: Duration::from_secs(60),
        ..OperatorController::default()
    };
    let operator = operate_with(&cluster, plugins(&world), &history, settings);
    for index in 0..3 {
        create_box(&cluster, &format!("calm{index}"), json!({})).await;
        cluster.wait_until::<Resource>(&format!("box.calm{index}"), is_ready).await;
    }
    for index in 0..3 {
        world.lock().failures = vec![ActionError::transient("no luck")];
        create_box(&cluster, &format!("failed{index}"), json!({})).await;
        cluster.wait_until::<Resource>(&format!("box.failed{index}"), |it| it.state() == State::Failed).await;
    }
    operator.kill().await;
    // While nobody is at work everything becomes due, and a user wants something.
    cluster.pass(Duration::from_secs(75)).await;
    world.lock().calls.clear();
    let operator = operate_with(&cluster, plugins(&world), &history, settings);
    create_box(&cluster, "user", json!({})).await;
    cluster.wait_for("all of them", || async { (world.lock().calls.len() >= 7).then_some(()) }).await;
    let calls: Vec<String> = world.lock().calls.iter().take(7).cloned().collect();
    let first = |what: &str| calls.iter().position(|call| call.starts_with(what)).expect(what);
    let last = |what: &str| calls.iter().rposition(|call| call.starts_with(what)).expect(what);
    assert!(last("apply failed") < first("drift calm"), "{calls:?}");
    assert!(first("apply user") < last("apply failed"), "{calls:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_controllers_one_acts_and_the_other_takes_over() {
    let (cluster, world, history) = scene().await;
    world.lock().questions = 3;
    let contend = |identity: &str| {
        let mut lease = steersman::LeaseOptions::new("default", steersman_infra::LEASE);
        lease.identity = identity.into();
        let options = steersman::Options { lease: Some(lease), ..cluster.options("infra") };
        let all = Options {
            controller: OperatorController::default(),
            plugins: plugins(&world),
            history: history.clone(),
            namespace: "default".into(),
        };
        cluster.run_manager(controllers(cluster.manager(options), all))
    };
    let first = contend("first");
    create_box(&cluster, "one", json!({})).await;
    cluster.wait_until::<Resource>("box.one", is_ready).await;
    let second = contend("second");
    create_box(&cluster, "two", json!({})).await;
    cluster
        .wait_until::<Resource>("box.two", |it| {
            let attempt = it.status.as_ref().and_then(|status| status.attempt.as_ref());
            attempt.is_some_and(|attempt| attempt.checkpoint.is_some())
        })
        .await;
    first.kill().await;
    create_box(&cluster, "three", json!({})).await;
    for name in ["box.two", "box.three"] {
        cluster.wait_until::<Resource>(name, is_ready).await;
    }
    {
        let state = world.lock();
        assert!(state.begun.values().all(|times| *times == 1), "nothing was begun twice");
        assert_eq!((state.begun.len(), state.things.len()), (3, 3), "nothing was forgotten");
    }
    assert!(second.is_running());
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drift_check_that_fails_changes_nothing_and_is_told_as_an_event() {
    let (cluster, world, history) = scene().await;
    let operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({})).await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready).await;
    world.lock().drift_failures = 2;
    cluster.pass(Duration::from_secs(1000)).await;
    assert!(world.lock().drift_checks >= 3);
    assert_eq!(world.lock().applies, 1, "not being able to look is no reason to act");
    let now = cluster.get::<Resource>("box.one").await.expect("the resource");
    assert_eq!(now.metadata.resource_version, ready.metadata.resource_version, "nothing was written");
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    assert_eq!(entries.len(), 1, "checks that find nothing leave no entries");
    let events = cluster.list::<k8s_openapi::api::events::v1::Event>().await;
    assert!(events.iter().any(|it| it.reason.as_deref() == Some("DriftCheckFailed")), "{events:?}");
    assert!(operator.metric("infra_drift_checks_total{plugin=\"fake\"}") >= 3.0);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_or_a_manual_trigger_forgets_the_failures_before() {
    let (cluster, world, history) = scene().await;
    world.lock().failures = vec![ActionError::transient("no luck"); 5];
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({"size": 1})).await;
    let failed = |times: u32, seen: usize| {
        let cluster = &cluster;
        let world = &world;
        async move {
            cluster
                .wait_until::<Resource>("box.one", |it| {
                    let status = it.status.as_ref();
                    it.state() == State::Failed
                        && status.is_some_and(|status| status.failures == times)
                        && world.lock().failures.len() == 5 - seen
                })
                .await
        }
    };
    failed(2, 2).await;
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 2}}})).await;
    failed(1, 3).await;
    failed(2, 4).await;
    cluster.patch::<Resource>("box.one", json!({"metadata": {"annotations": {TRIGGER: "again"}}})).await;
    let again = failed(1, 5).await;
    let next = again.status.as_ref().and_then(|status| status.next_attempt_at).expect("a time");
    let wait = next.duration_since((cluster.clock())()).as_secs();
    assert!((50..=67).contains(&wait), "about a minute, as after a first failure: {wait}");
    let reasons: Vec<&str> = again
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .map(|condition| condition.reason.as_str())
        .collect();
    assert_eq!(reasons, ["Failed", "Idle", "AttemptFailed"]);
    cluster.wait_until::<Resource>("box.one", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_while_an_attempt_is_under_way_follows_it() {
    let (cluster, world, history) = scene().await;
    world.lock().questions = 3;
    let _operator = operate(&cluster, plugins(&world), &history);
    create_box(&cluster, "one", json!({"size": 1})).await;
    cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Reconciling).await;
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 2}}})).await;
    let ready = cluster
        .wait_until::<Resource>("box.one", |it| {
            is_ready(it) && it.status.as_ref().and_then(|it| it.last_reconciled_generation) == Some(2)
        })
        .await;
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    let seen: Vec<(i64, &str)> = entries.iter().map(|(_, it)| (it.generation, it.trigger.as_str())).collect();
    assert_eq!(seen, [(2, "spec_change"), (1, "initial")]);
    assert!(world.lock().things.values().eq([&json!({"size": 2})]));
}
