//! A Deployment's plans, case by case, and as a property over simulated rollouts.

use super::plan::{Action, Plan, plan};
use super::template::{DESIRED_REPLICAS, HASH_LABEL, MAX_REPLICAS, REVISION};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn deployment(replicas: i32, image: &str, change: impl FnOnce(&mut Value)) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]}}}
    });
    change(&mut value);
    serde_json::from_value(value).expect("a deployment")
}

/// A small stand-in for the API server and the ReplicaSet controller.
#[derive(Default)]
struct World {
    sets: BTreeMap<String, ReplicaSet>,
    /// Pods by ReplicaSet: how many there are, and how many of them are available.
    pods: BTreeMap<String, (i32, i32)>,
    status: Option<DeploymentStatus>,
    revision: i64,
    clock: i64,
}

impl World {
    fn now(&self) -> Timestamp {
        start() + SignedDuration::from_secs(self.clock)
    }

    fn step(&mut self, deployment: &Deployment) -> Plan {
        self.clock += 1;
        let mut deployment = deployment.clone();
        deployment.status = self.status.clone();
        let sets = self.sets.values().cloned().map(Arc::new).collect();
        let pods = self.pods.clone();
        let has_pods = move |set: &ReplicaSet| pods.get(&set.name_any()).is_some_and(|(count, _)| *count > 0);
        let plan = plan(&deployment, sets, has_pods, self.now());
        for action in &plan.actions {
            match action {
                Action::Create(set) => {
                    let mut set = (**set).clone();
                    let uid = set.name_any();
                    set.metadata.uid = Some(uid.clone());
                    set.metadata.generation = Some(1);
                    set.metadata.creation_timestamp = Some(Time(self.now()));
                    assert!(self.sets.insert(uid, set).is_none(), "created twice");
                }
                Action::Update(update) => {
                    let set = self.sets.get_mut(&update.live.name_any()).expect("a known set");
                    set.metadata.annotations = Some(update.annotations.clone());
                    let spec = set.spec.get_or_insert_default();
                    if spec.replicas != Some(update.replicas) {
                        *set.metadata.generation.get_or_insert(0) += 1;
                    }
                    spec.replicas = Some(update.replicas);
                    spec.min_ready_seconds = update.min_ready_seconds;
                }
                Action::Delete(set) => {
                    self.sets.remove(&set.name_any());
                }
            }
        }
        self.status = Some(plan.status.clone());
        self.revision = plan.revision;
        plan
    }

    /// The ReplicaSet controller brings one set to its size, unavailable pods first.
    fn sync_pods(&mut self, name: &str) {
        let wanted = self.replicas(name);
        let (count, available) = self.pods.entry(name.to_owned()).or_default();
        *count = wanted;
        *available = (*available).min(wanted);
    }

    /// Some pods of a set become available.
    fn become_available(&mut self, name: &str, some: i32) {
        let (count, available) = self.pods.entry(name.to_owned()).or_default();
        *available = (*available + some).min(*count);
    }

    /// A set reports what it has.
    fn report(&mut self, name: &str) {
        let (count, available) = self.pods.get(name).copied().unwrap_or_default();
        let set = self.sets.get_mut(name).expect("a known set");
        let generation = set.metadata.generation;
        let status = set.status.get_or_insert_default();
        status.replicas = count;
        status.ready_replicas = Some(available);
        status.available_replicas = Some(available);
        status.terminating_replicas = Some(0);
        status.observed_generation = generation;
    }

    fn settle_sets(&mut self) {
        for name in self.sets.keys().cloned().collect::<Vec<_>>() {
            self.sync_pods(&name);
            self.become_available(&name, i32::MAX / 2);
            self.report(&name);
        }
    }

    /// Until nothing is left to do.
    fn settle(&mut self, deployment: &Deployment) {
        for _ in 0..200 {
            self.settle_sets();
            let before = self.status.clone();
            let plan = self.step(deployment);
            if plan.actions.is_empty() && before == Some(plan.status) {
                return;
            }
        }
        panic!("does not settle: {:?}", self.sizes());
    }

    fn replicas(&self, name: &str) -> i32 {
        self.sets.get(name).and_then(|set| set.spec.as_ref()?.replicas).unwrap_or(0)
    }

    fn image(set: &ReplicaSet) -> String {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.as_ref()?.spec.as_ref());
        spec.and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default()
    }

    /// Sizes by image.
    fn sizes(&self) -> BTreeMap<String, i32> {
        self.sets.values().map(|set| (Self::image(set), self.replicas(&set.name_any()))).collect()
    }

    fn size(&self, image: &str) -> i32 {
        self.sizes().get(image).copied().unwrap_or(-1)
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let conditions =
            self.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == kind);
        let found = found.map(|c| (c.status, c.reason.unwrap_or_default(), c.message.unwrap_or_default()));
        found.unwrap_or_default()
    }
}

#[test]
fn a_first_rollout_creates_one_replica_set_of_full_size_and_ends_available() {
    let mut world = World::default();
    let web = deployment(3, "v1", |_| {});
    world.step(&web);
    assert_eq!(world.size("v1"), 3);
    let name = world.sets.keys().next().cloned().unwrap_or_default();
    assert_eq!(
        world.condition("Progressing"),
        ("True".into(), "NewReplicaSetCreated".into(), format!("Created new replica set \"{name}\""))
    );
    assert_eq!(world.condition("Available").1, "MinimumReplicasUnavailable");
    world.settle(&web);
    assert_eq!(
        world.condition("Progressing"),
        (
            "True".into(),
            "NewReplicaSetAvailable".into(),
            format!("ReplicaSet \"{name}\" has successfully progressed.")
        )
    );
    assert_eq!(
        world.condition("Available"),
        ("True".into(), "MinimumReplicasAvailable".into(), "Deployment has minimum availability.".into())
    );
    assert_eq!(world.revision, 1);
    let status = world.status.clone().unwrap_or_default();
    assert_eq!(
        (status.replicas, status.updated_replicas, status.available_replicas),
        (Some(3), Some(3), Some(3))
    );
    assert_eq!((status.unavailable_replicas, status.observed_generation), (None, Some(1)));
}

#[test]
fn a_new_template_rolls_step_by_step_within_the_budget() {
    let mut world = World::default();
    world.settle(&deployment(4, "v1", |_| {}));
    let web = deployment(4, "v2", |_| {});
    world.step(&web);
    assert_eq!((world.size("v1"), world.size("v2")), (3, 1), "one more, and one fewer, at once");
    world.settle_sets();
    world.step(&web);
    assert_eq!((world.size("v1"), world.size("v2")), (3, 2));
    world.settle(&web);
    assert_eq!((world.size("v1"), world.size("v2")), (0, 4));
    assert_eq!(world.revision, 2);
}

#[test]
fn rolling_back_reuses_the_old_replica_set_under_a_new_revision() {
    let mut world = World::default();
    for image in ["v1", "v2", "v1"] {
        world.settle(&deployment(2, image, |_| {}));
    }
    assert_eq!(world.sets.len(), 2);
    assert_eq!((world.size("v1"), world.revision), (2, 3));
    let set = world.sets.values().find(|set| World::image(set) == "v1").expect("the first set");
    assert_eq!(set.annotations()[REVISION], "3");
    assert_eq!(set.annotations()["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn recreate_waits_until_the_last_old_pod_is_gone() {
    let recreate =
        |image: &str| deployment(2, image, |value| value["spec"]["strategy"] = json!({"type": "Recreate"}));
    let mut world = World::default();
    world.settle(&recreate("v1"));
    let web = recreate("v2");
    world.step(&web);
    assert_eq!((world.size("v1"), world.size("v2")), (0, -1));
    world.step(&web);
    assert_eq!(world.size("v2"), -1, "old pods are still there");
    let old = world.sets.keys().next().cloned().unwrap_or_default();
    world.report(&old);
    world.pods.insert(old.clone(), (1, 0));
    world.sets.get_mut(&old).expect("the set").status.get_or_insert_default().replicas = 0;
    world.step(&web);
    assert_eq!(world.size("v2"), -1, "a pod on its way out is still a pod");
    world.settle_sets();
    world.step(&web);
    assert_eq!(world.size("v2"), 2);
    world.settle(&web);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::default();
    world.settle(&deployment(2, "v1", |_| {}));
    let paused = deployment(5, "v2", |value| value["spec"]["paused"] = true.into());
    world.settle(&paused);
    assert_eq!((world.size("v1"), world.size("v2")), (5, -1));
    assert_eq!(
        world.condition("Progressing"),
        ("Unknown".into(), "DeploymentPaused".into(), "Deployment is paused".into())
    );
    let resumed = deployment(5, "v2", |_| {});
    world.step(&resumed);
    assert_ne!(world.condition("Progressing").1, "DeploymentPaused");
    world.settle(&resumed);
    assert_eq!(world.size("v2"), 5);
}

#[test]
fn scaling_in_the_middle_of_a_rollout_keeps_the_proportions() {
    let fixed = |replicas: i32, image: &str| {
        deployment(replicas, image, |value| {
            value["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 3, "maxUnavailable": 2});
        })
    };
    let mut world = World::default();
    world.settle(&fixed(10, "v1"));
    world.step(&fixed(10, "v2"));
    for name in world.sets.keys().cloned().collect::<Vec<_>>() {
        world.sync_pods(&name);
        world.report(&name);
    }
    world.step(&fixed(10, "v2"));
    assert_eq!((world.size("v1"), world.size("v2")), (8, 5));
    world.step(&fixed(15, "v2"));
    assert_eq!((world.size("v1"), world.size("v2")), (11, 7), "18 of them, in the same parts");
    assert!(world.sets.values().all(|set| set.annotations()[DESIRED_REPLICAS] == "15"));
    assert!(world.sets.values().all(|set| set.annotations()[MAX_REPLICAS] == "18"));
}

#[test]
fn history_beyond_the_limit_is_forgotten_oldest_first() {
    let limited =
        |image: &str| deployment(1, image, |value| value["spec"]["revisionHistoryLimit"] = 2.into());
    let mut world = World::default();
    for image in ["v1", "v2", "v3", "v4", "v5"] {
        world.settle(&limited(image));
    }
    assert_eq!(world.sizes().into_keys().collect::<Vec<_>>(), ["v3", "v4", "v5"]);
}

#[test]
fn a_standstill_is_reported_once_the_deadline_has_passed() {
    let mut world = World::default();
    let web = deployment(2, "v1", |_| {});
    world.step(&web);
    let name = world.sets.keys().next().cloned().unwrap_or_default();
    world.sync_pods(&name);
    world.report(&name);
    world.step(&web);
    let plan = world.step(&web);
    assert_eq!(world.condition("Progressing").1, "ReplicaSetUpdated");
    assert_eq!(plan.check_after, Some(SignedDuration::from_secs(600)));
    world.clock += 601;
    let plan = world.step(&web);
    assert_eq!(
        world.condition("Progressing"),
        (
            "False".into(),
            "ProgressDeadlineExceeded".into(),
            format!("ReplicaSet \"{name}\" has timed out progressing.")
        )
    );
    assert_eq!(plan.check_after, None);
    world.settle(&web);
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable", "late is better than never");
}

#[test]
fn without_a_deadline_there_is_no_progressing_condition() {
    let mut world = World::default();
    world.settle(&deployment(1, "v1", |value| value["spec"]["progressDeadlineSeconds"] = i32::MAX.into()));
    assert_eq!(world.condition("Progressing"), Default::default());
    assert_eq!(world.condition("Available").0, "True");
}

#[test]
fn a_failure_of_a_replica_set_shows_on_the_deployment() {
    let mut world = World::default();
    let web = deployment(1, "v1", |_| {});
    world.step(&web);
    let set = world.sets.values_mut().next().expect("a set");
    set.status = serde_json::from_value(json!({"replicas": 0, "conditions": [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]}))
    .expect("a status");
    world.step(&web);
    assert_eq!(world.condition("ReplicaFailure"), ("True".into(), "FailedCreate".into(), "quota".into()));
    world.sets.values_mut().for_each(|set| set.status = None);
    world.settle(&web);
    assert_eq!(world.condition("ReplicaFailure"), Default::default());
}

#[test]
fn annotations_and_min_ready_seconds_follow_the_deployment() {
    let mut world = World::default();
    world.settle(&deployment(1, "v1", |_| {}));
    world.settle(&deployment(1, "v1", |value| {
        value["metadata"]["annotations"] = json!({"kubernetes.io/change-cause": "why"});
        value["spec"]["minReadySeconds"] = 7.into();
    }));
    let set = world.sets.values().next().expect("a set");
    assert_eq!(set.annotations()["kubernetes.io/change-cause"], "why");
    assert_eq!(set.spec.as_ref().and_then(|spec| spec.min_ready_seconds), Some(7));
    assert!(set.labels().contains_key(HASH_LABEL));
}

#[test]
fn a_deployment_that_is_being_deleted_only_reports() {
    let mut world = World::default();
    world.settle(&deployment(2, "v1", |_| {}));
    let leaving =
        deployment(9, "v2", |value| value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    assert_eq!(world.step(&leaving).actions, vec![]);
}

/// Something that happens to the world during a rollout.
#[derive(Clone, Debug)]
enum Happening {
    Plan,
    SyncPods(usize),
    BecomeAvailable(usize, i32),
    Report(usize),
    NewTemplate(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Plan),
        3 => (0..4_usize).prop_map(Happening::SyncPods),
        3 => (0..4_usize, 1..4_i32).prop_map(|(set, some)| Happening::BecomeAvailable(set, some)),
        3 => (0..4_usize).prop_map(Happening::Report),
        1 => (0..3_u8).prop_map(Happening::NewTemplate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the order in which ReplicaSets act and report, however late: never more pods are
    /// asked for than desired plus surge, never fewer are available than desired minus what may
    /// be missing, and in the end the rollout is complete.
    #[test]
    fn a_rolling_update_keeps_its_budget_and_converges(
        replicas in 1..12_i32,
        surge in 0..4_i32,
        unavailable in 0..4_i32,
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        prop_assume!(surge + unavailable > 0);
        let web = |version: u8| deployment(replicas, &format!("v{version}"), |value| {
            value["spec"]["strategy"]["rollingUpdate"] =
                json!({"maxSurge": surge, "maxUnavailable": unavailable});
        });
        let mut world = World::default();
        let mut version = 0;
        world.settle(&web(version));
        let floor = replicas - unavailable.min(replicas);
        for happening in happenings {
            let names: Vec<String> = world.sets.keys().cloned().collect();
            let name = |index: usize| names[index % names.len()].clone();
            match happening {
                Happening::Plan => { world.step(&web(version)); }
                Happening::SyncPods(index) => world.sync_pods(&name(index)),
                Happening::BecomeAvailable(index, some) => world.become_available(&name(index), some),
                Happening::Report(index) => world.report(&name(index)),
                Happening::NewTemplate(next) => version = next,
            }
            let asked: i32 = world.sizes().values().sum();
            prop_assert!(asked <= replicas + surge, "{asked} pods asked for: {:?}", world.sizes());
            let available: i32 = world.pods.values().map(|(_, available)| available).sum();
            prop_assert!(available >= floor, "{available} of {floor} available: {:?}", world.sizes());
        }
        world.settle(&web(version));
        prop_assert_eq!(world.size(&format!("v{version}")), replicas);
        prop_assert_eq!(world.sizes().values().sum::<i32>(), replicas);
    }
}
