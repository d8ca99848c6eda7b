//! Runs against a small world of pods, with crashes, lost answers and late news at any point.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;
use steersman::Key;

use super::{Run, names, pod};
use crate::types::{Observatory, ObservatoryStatus, Phase};

/// What the server knows.
struct World {
    workflow: Arc<Observatory>,
    status: ObservatoryStatus,
    pods: BTreeMap<String, Pod>,
    now: Timestamp,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Comes,
    IsLost,
    NeverSent,
}

#[derive(Clone, Debug)]
enum Step {
    Start(usize, Answer),
    Finish { pod: usize, code: i32 },
    Hear,
    Write,
    Crash,
    Wait(i64),
}

impl World {
    fn new(edges: &[(usize, usize)], tasks: usize, limit: i32) -> Self {
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let above: Vec<String> =
                    edges.iter().filter(|(_, to)| *to == task).map(|(from, _)| format!("t{from}")).collect();
                json!({
                    "name": format!("t{task}"), "image": "i", "dependencies": above,
                    "retry": {"limit": 1, "backoff": {"duration": "5s"}},
                })
            })
            .collect();
        let workflow = serde_json::from_value(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "generation": 1},
            "spec": {"tasks": tasks, "maxConcurrent": limit},
        }))
        .expect("an Observatory");
        Self {
            workflow: Arc::new(workflow),
            status: ObservatoryStatus::default(),
            pods: BTreeMap::new(),
            now: Timestamp::from_second(1_767_225_600).expect("in range"),
        }
    }

    fn restore(&self) -> Run {
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        Run::restore(Arc::clone(&self.workflow), self.status.clone(), &pods, self.now)
    }

    fn live(&self) -> Vec<String> {
        let live = self.pods.values().filter(|pod| phase(pod).is_none());
        live.map(|pod| pod.name_any()).collect()
    }

    /// Creates a pod as the server would, after checking that it may be.
    fn create(&mut self, run: &Run, task: u32) -> Arc<Pod> {
        let spec = run.task(task);
        let attempt = run.attempt(task);
        let name = names::plain_pod_name("w", &spec.name, attempt)
            .unwrap_or_else(|| names::hashed_pod_name("w", "u", &spec.name, attempt));
        if let Some(known) = self.pods.get(&name) {
            assert!(names::is_ours(known, "u", &spec.name, attempt));
            return Arc::new(known.clone());
        }
        for above in &spec.dependencies {
            assert!(self.has_succeeded(above), "{} starts before {above} has succeeded", spec.name);
        }
        assert!(!self.has_succeeded(&spec.name), "{} has succeeded and runs again", spec.name);
        let mut made = pod(&self.workflow, spec, attempt, &name).expect("a pod");
        made.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        self.pods.insert(name, made.clone());
        let limit = self.workflow.spec.concurrency();
        assert!(self.live().len() <= limit, "{:?} run at once", self.live());
        Arc::new(made)
    }

    fn has_succeeded(&self, task: &str) -> bool {
        self.pods.values().any(|pod| names::task_of(pod) == Some(task) && phase(pod) == Some("Succeeded"))
    }

    fn finish(&mut self, name: &str, code: i32) {
        let now = self.now;
        let status = json!({
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "containerStatuses": [{
                "name": "task", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}},
            }],
        });
        if let Some(pod) = self.pods.get_mut(name) {
            pod.status = serde_json::from_value(status).ok();
        }
    }

    fn start(&mut self, run: &mut Run, most: usize, answer: Answer) {
        for task in run.next_starts(most, || true) {
            match answer {
                Answer::Comes => {
                    let pod = self.create(run, task);
                    run.started(pod, self.now);
                }
                Answer::IsLost => {
                    self.create(run, task);
                    run.unanswered(task, false, "the answer is lost");
                }
                Answer::NeverSent => run.unanswered(task, false, "the server is away"),
            }
        }
    }

    fn hear(&self, run: &mut Run) {
        for pod in self.pods.values() {
            run.see(&Key::of(pod), Some(Arc::new(pod.clone())), self.now);
        }
    }

    fn write(&mut self, run: &mut Run) {
        self.status = run.report(self.now).into_status();
        for key in run.take_ended() {
            if let Some(pod) = self.pods.get_mut(key.name()) {
                pod.metadata.finalizers = None;
            }
        }
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let answer =
        prop_oneof![6 => Just(Answer::Comes), 1 => Just(Answer::IsLost), 1 => Just(Answer::NeverSent)];
    let step = prop_oneof![
        4 => (1usize..5, answer).prop_map(|(most, answer)| Step::Start(most, answer)),
        4 => (any::<usize>(), prop_oneof![4 => Just(0), 1 => Just(1)])
            .prop_map(|(pod, code)| Step::Finish { pod, code }),
        4 => Just(Step::Hear),
        2 => Just(Step::Write),
        1 => Just(Step::Crash),
        1 => (1i64..10).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn whatever_happens_each_task_runs_once_in_order_and_within_limits(
        tasks in 1usize..8,
        edges in prop::collection::btree_set((0usize..8, 0usize..8), 0..12),
        limit in 1i32..4,
        steps in steps(),
    ) {
        let edges: Vec<(usize, usize)> =
            edges.into_iter().filter(|(from, to)| from < to && *to < tasks).collect();
        let mut world = World::new(&edges, tasks, limit);
        let mut run = world.restore();
        for step in steps {
            match step {
                Step::Start(most, answer) => world.start(&mut run, most, answer),
                Step::Finish { pod, code } => {
                    let live = world.live();
                    if !live.is_empty() {
                        world.finish(&live[pod % live.len()], code);
                    }
                }
                Step::Hear => world.hear(&mut run),
                Step::Write => world.write(&mut run),
                Step::Crash => run = world.restore(),
                Step::Wait(seconds) => {
                    world.now = world.now.saturating_add(SignedDuration::from_secs(seconds)).expect("in range");
                    run.tick(world.now);
                }
            }
        }
        // Left alone, it comes to its end.
        for _ in 0..200 {
            world.hear(&mut run);
            world.now = world.now.saturating_add(SignedDuration::from_secs(10)).expect("in range");
            run.tick(world.now);
            world.start(&mut run, 100, Answer::Comes);
            for name in world.live() {
                world.finish(&name, 0);
            }
            if run.is_over() {
                break;
            }
        }
        prop_assert!(run.is_over());
        world.write(&mut run);
        for pod in world.pods.values() {
            prop_assert!(!names::is_unrecorded(pod), "{} is still held", pod.name_any());
        }
        for task in &world.status.tasks {
            prop_assert_eq!(task.phase == Phase::Succeeded, world.has_succeeded(&task.name), "{}", &task.name);
            prop_assert!(task.phase.is_over());
        }
        // And what is restored from the end is the end.
        let again = world.restore();
        prop_assert!(again.is_over());
        prop_assert_eq!(again.phase(), run.phase());
    }
}

#[test]
fn a_run_whose_status_was_never_written_is_taken_up_from_its_pods() {
    let mut world = World::new(&[(0, 1)], 2, 10);
    let mut run = world.restore();
    world.start(&mut run, 10, Answer::Comes);
    world.finish("w-t0", 0);
    let mut run = world.restore();
    assert_eq!(run.phase(), Phase::Running);
    world.start(&mut run, 10, Answer::Comes);
    assert_eq!(world.live(), ["w-t1"]);
}

#[test]
fn an_attempt_that_nobody_wrote_down_is_found_among_the_pods() {
    let mut world = World::new(&[], 1, 10);
    let mut run = world.restore();
    world.start(&mut run, 10, Answer::Comes);
    world.finish("w-t0", 3);
    world.hear(&mut run);
    world.now = world.now.saturating_add(SignedDuration::from_secs(10)).expect("in range");
    run.tick(world.now);
    world.start(&mut run, 10, Answer::Comes);
    // Two attempts were made, and the status knows of none.
    let mut run = world.restore();
    let status = run.report(world.now).into_status();
    assert_eq!((status.tasks[0].attempt, status.tasks[0].attempts.len()), (1, 1));
    assert_eq!(status.tasks[0].attempts[0].exit_code, Some(3));
}

#[test]
fn a_task_that_is_added_while_a_workflow_runs_is_run_as_well() {
    let mut world = World::new(&[], 1, 10);
    let mut run = world.restore();
    world.start(&mut run, 10, Answer::Comes);
    world.write(&mut run);
    let wider = World::new(&[(0, 1)], 2, 10);
    world.workflow = wider.workflow;
    let mut run = world.restore();
    world.finish("w-t0", 0);
    world.hear(&mut run);
    world.start(&mut run, 10, Answer::Comes);
    assert_eq!(world.live(), ["w-t1"]);
}

#[test]
fn a_pod_that_is_gone_without_a_word_is_an_error_and_not_made_again() {
    let mut world = World::new(&[], 1, 10);
    let mut run = world.restore();
    world.start(&mut run, 10, Answer::Comes);
    world.write(&mut run);
    world.pods.clear();
    let mut run = world.restore();
    world.start(&mut run, 10, Answer::Comes);
    assert!(world.pods.is_empty());
    let status = run.report(world.now).into_status();
    assert_eq!(status.tasks[0].reason.as_deref(), Some("PodLost"));
    assert_eq!(status.phase(), Phase::Failed);
}
