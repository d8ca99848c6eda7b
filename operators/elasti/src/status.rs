//! What an ElastiService reports.

use crate::plan::{Plan, World};
use crate::ports::{self, Own};
use crate::trigger::Verdict;
use crate::types::{ElastiService, ElastiServiceStatus, Mode};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman::conditions::{self, ConditionStatus, Observation};

/// Why an ElastiService cannot do its work: a word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The status of an ElastiService that works.
pub(crate) fn report(
    elasti: &ElastiService,
    world: &World,
    plan: &Plan,
    last_up: Option<Timestamp>,
    own: &Own,
) -> ElastiServiceStatus {
    let mut status = begin(elasti);
    status.mode = Some(plan.mode);
    status.replicas = Some(plan.scale.unwrap_or(world.replicas));
    status.switched_time = plan.switched.map(Time);
    status.last_scaled_up_time = last_up.map(Time);
    status.resolver_ports = ports::told(own);
    let mut say = |r#type, status_of: ConditionStatus, reason, message: String| {
        let generation = elasti.metadata.generation;
        let observation = Observation { r#type, status: status_of, reason, message, generation };
        conditions::set(&mut status.conditions, world.now, observation);
    };
    say("TargetFound", ConditionStatus::True, "Found", "The target can be scaled".into());
    let resolvers = world.resolvers > 0;
    let (reason, message) = match resolvers {
        true => ("ResolverReady", "The resolver takes requests while the target sleeps"),
        false => ("NoResolver", "No resolver is ready, so that the target is not put to sleep"),
    };
    say("ResolverReachable", resolvers.into(), reason, message.into());
    match &world.verdict {
        Verdict::Unknown(why) => say("TriggerHealthy", ConditionStatus::False, "Unknown", why.clone()),
        _ => say("TriggerHealthy", ConditionStatus::True, "Answered", "All triggers answer".into()),
    }
    let served = plan.mode == Mode::Serve || resolvers;
    let (reason, message) = match (plan.mode, world.replicas, world.ready) {
        (Mode::Serve, _, _) => ("Serving", "Requests go to the pods"),
        (Mode::Proxy, 0, _) => ("Asleep", "The target sleeps; the first request wakes it"),
        (Mode::Proxy, _, 0) => ("Waking", "Requests are held until a pod is ready"),
        (Mode::Proxy, _, _) => ("Proxying", "Requests go to the pods through the resolver"),
    };
    say("Ready", served.into(), reason, message.into());
    finish(elasti, status, world.now)
}

/// The status of an ElastiService that cannot work.
pub(crate) fn failure(elasti: &ElastiService, problem: &Problem, now: Timestamp) -> ElastiServiceStatus {
    let mut status = begin(elasti);
    let mut say = |r#type, status_of| {
        let observation = Observation {
            r#type,
            status: status_of,
            reason: problem.reason,
            message: problem.message.clone(),
            generation: elasti.metadata.generation,
        };
        conditions::set(&mut status.conditions, now, observation);
    };
    say("Ready", ConditionStatus::False);
    if problem.reason.starts_with("Target") {
        say("TargetFound", ConditionStatus::False);
    }
    finish(elasti, status, now)
}

fn begin(elasti: &ElastiService) -> ElastiServiceStatus {
    let mut status = elasti.status.clone().unwrap_or_default();
    status.observed_generation = elasti.metadata.generation;
    status
}

/// The time moves only when something else does: a status that says the same is not written.
fn finish(elasti: &ElastiService, mut status: ElastiServiceStatus, now: Timestamp) -> ElastiServiceStatus {
    if elasti.status.as_ref() != Some(&status) {
        status.last_reconciled_time = Some(Time(now));
    }
    status
}
