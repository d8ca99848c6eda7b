//! What to do next about a resource: a pure function of what is known.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::types::{ID, Operation, Resource, ResourceStatus, State, TRIGGER, Trigger};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Begin an attempt.
    Start(Operation, Trigger),
    /// Look how the attempt under way stands.
    Resume,
    /// Look whether a ready resource is still as it should be.
    CheckDrift,
    /// Nothing before this much time has passed.
    Wait(Duration, &'static str),
    /// Nothing until something changes.
    Rest,
}

/// What to do next; nothing more for one that has been destroyed. `drift_due` says when the next drift check is due, if any ever is.
pub(super) fn decide(resource: &Resource, now: Timestamp, drift_due: Option<Timestamp>) -> Step {
    let nothing = ResourceStatus::default();
    let status = resource.status.as_ref().unwrap_or(&nothing);
    if let Some(attempt) = &status.attempt {
        return match attempt.poll_at {
            Some(at) if at > now => Step::Wait(until(at, now), "the action is under way"),
            _ => Step::Resume,
        };
    }
    let asked = resource.annotations().get(TRIGGER);
    let manual = asked.is_some() && asked != status.observed_trigger.as_ref();
    let due = |at: Option<Timestamp>| match at {
        Some(at) if at > now => Some(Step::Wait(until(at, now), "a failed attempt is repeated later")),
        _ => None,
    };
    if resource.metadata.deletion_timestamp.is_some() {
        if status.last_operation != Some(Operation::Destroy) || manual {
            return Step::Start(Operation::Destroy, Trigger::Deletion);
        }
        if status.failures == 0 {
            return Step::Rest;
        }
        let wait = due(status.next_attempt_at);
        return wait.unwrap_or(Step::Start(Operation::Destroy, Trigger::Deletion));
    }
    if status.observed_generation != resource.metadata.generation {
        let trigger =
            if status.observed_generation.is_none() { Trigger::Initial } else { Trigger::SpecChange };
        return Step::Start(Operation::Apply, trigger);
    }
    if manual {
        return Step::Start(Operation::Apply, Trigger::Manual);
    }
    match status.state {
        Some(State::Failed) => {
            due(status.next_attempt_at).unwrap_or(Step::Start(Operation::Apply, Trigger::Retry))
        }
        Some(State::Ready) => match drift_due {
            None => Step::Rest,
            Some(at) if at > now => Step::Wait(until(at, now), "drift check"),
            Some(_) => Step::CheckDrift,
        },
        _ => Step::Start(Operation::Apply, Trigger::Retry),
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// Whether the resource still needs its number.
pub(super) fn needs_id(resource: &Resource) -> bool {
    !resource.labels().contains_key(ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Attempt, AttemptPhase};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn resource(change: impl FnOnce(&mut Resource, &mut ResourceStatus)) -> Resource {
        let mut resource = Resource::default();
        resource.metadata.generation = Some(2);
        let mut status = ResourceStatus {
            state: Some(State::Ready),
            observed_generation: Some(2),
            ..ResourceStatus::default()
        };
        change(&mut resource, &mut status);
        resource.status = Some(status);
        resource
    }

    #[test]
    fn the_next_step_follows_from_what_is_known() {
        use Operation::{Apply, Destroy};
        let wait = |seconds, why| Step::Wait(Duration::from_secs(seconds), why);
        let attempt = Attempt {
            id: "a".into(),
            operation: Apply,
            trigger: Trigger::Initial,
            phase: AttemptPhase::Applying,
            generation: 1,
            started_at: at(0),
            checkpoint: None,
            poll_at: None,
            poll_failures: 0,
            cancelling: false,
        };
        let mut fresh = Resource::default();
        fresh.metadata.generation = Some(1);
        let running =
            |poll_at| resource(|_, status| status.attempt = Some(Attempt { poll_at, ..attempt.clone() }));
        let asked = |old: Option<&str>| {
            resource(|resource, status| {
                resource.annotations_mut().insert(TRIGGER.into(), "2".into());
                status.observed_trigger = old.map(ToOwned::to_owned);
                status.state = Some(State::Failed);
                status.next_attempt_at = Some(at(200));
            })
        };
        let failed = |again| {
            resource(|_, status| {
                status.state = Some(State::Failed);
                status.next_attempt_at = again;
            })
        };
        let deleted = |last, failures, again| {
            resource(|resource, status| {
                status.failures = failures;
                resource.metadata.deletion_timestamp = Some(Time(at(50)));
                status.last_operation = last;
                status.next_attempt_at = again;
            })
        };
        let cases = [
            ("new", fresh, None, Step::Start(Apply, Trigger::Initial)),
            ("an attempt without checkpoint", running(None), None, Step::Resume),
            ("not yet to be asked", running(Some(at(110))), None, wait(10, "the action is under way")),
            (
                "changed",
                resource(|r, _| r.metadata.generation = Some(3)),
                None,
                Step::Start(Apply, Trigger::SpecChange),
            ),
            ("asked for", asked(Some("1")), None, Step::Start(Apply, Trigger::Manual)),
            ("asked for and done", asked(Some("2")), None, wait(100, "a failed attempt is repeated later")),
            ("failed and due", failed(Some(at(100))), None, Step::Start(Apply, Trigger::Retry)),
            ("failed for a reason that may be gone", failed(None), None, Step::Start(Apply, Trigger::Retry)),
            ("ready", resource(|_, _| {}), None, Step::Rest),
            ("ready, checked later", resource(|_, _| {}), Some(at(130)), wait(30, "drift check")),
            ("ready, check due", resource(|_, _| {}), Some(at(100)), Step::CheckDrift),
            (
                "deleted",
                deleted(Some(Apply), 3, Some(at(900))),
                None,
                Step::Start(Destroy, Trigger::Deletion),
            ),
            ("destroyed", deleted(Some(Destroy), 0, None), None, Step::Rest),
            (
                "destroy failed",
                deleted(Some(Destroy), 1, Some(at(900))),
                None,
                wait(800, "a failed attempt is repeated later"),
            ),
        ];
        for (case, resource, drift, expected) in cases {
            assert_eq!(decide(&resource, at(100), drift), expected, "{case}");
        }
    }
}
