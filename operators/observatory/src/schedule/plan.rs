//! Which runs are to be made now.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::cron::{Cron, CronError};
use crate::types::{CatchUp, ConcurrencyPolicy, ObservatorySpec};

/// The most runs that are made up for.
const MOST_MISSED: usize = 100;
/// How late a run may be that is not made up for.
const PUNCTUAL: SignedDuration = SignedDuration::from_secs(60);

/// All schedules of a workflow together.
#[derive(Clone, Debug)]
pub struct Clockwork(Vec<Cron>);

impl Clockwork {
    /// Reads the schedules of a spec.
    ///
    /// # Errors
    /// When one of them, or the time zone, is wrong.
    pub fn new(spec: &ObservatorySpec) -> Result<Self, CronError> {
        let zone = spec.timezone.as_deref();
        spec.all_schedules().map(|text| Cron::new(text, zone)).collect::<Result<_, _>>().map(Self)
    }

    /// The next time after this one at which any of them is due.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        self.0.iter().filter_map(|cron| cron.after(time)).min()
    }

    /// The latest hundred times after `from` and up to `until`, oldest first.
    pub fn due(&self, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        const HOUR: i64 = 3600;
        // Looks back further and further: after a year of silence, nobody needs every minute.
        for back in [HOUR, 24 * HOUR, 31 * 24 * HOUR, 366 * 24 * HOUR] {
            let start = until.saturating_add(SignedDuration::from_secs(-back)).unwrap_or(Timestamp::MIN);
            let found = self.between(start.max(from), until);
            if start <= from || found.len() >= MOST_MISSED {
                return found;
            }
        }
        self.between(from, until)
    }

    fn between(&self, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let mut times = BTreeSet::new();
        for cron in &self.0 {
            let all = std::iter::successors(cron.after(from), |time| cron.after(*time));
            times.extend(all.take_while(|time| *time <= until));
        }
        let skip = times.len().saturating_sub(MOST_MISSED);
        times.into_iter().skip(skip).collect()
    }
}

/// What the decision is made from.
#[derive(Clone, Debug)]
pub struct Situation {
    /// Everything up to here was decided before.
    pub decided: Timestamp,
    /// Now.
    pub now: Timestamp,
    /// The times whose runs go on.
    pub active: BTreeSet<Timestamp>,
    /// The times whose runs exist, ended or not.
    pub existing: BTreeSet<Timestamp>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The times whose runs are to be made.
    pub create: Vec<Timestamp>,
    /// The times whose runs are to be terminated.
    pub terminate: Vec<Timestamp>,
    /// The times that are left out, and why.
    pub skipped: Vec<(Timestamp, &'static str)>,
    /// Everything up to here is decided once that is done.
    pub decided: Timestamp,
}

/// Decides.
pub fn plan(spec: &ObservatorySpec, clockwork: &Clockwork, situation: &Situation) -> Plan {
    let now = situation.now;
    let mut plan =
        Plan { create: Vec::new(), terminate: Vec::new(), skipped: Vec::new(), decided: situation.decided };
    if spec.suspend {
        plan.decided = now.max(situation.decided);
        return plan;
    }
    let policy = spec.concurrency_policy.unwrap_or_default();
    let mut due = clockwork.due(situation.decided, now);
    let Some(&last) = due.last() else {
        return plan;
    };
    plan.decided = last;
    // Made by someone who could not write it down.
    due.retain(|time| !situation.existing.contains(time));
    let mut skip = |due: &mut Vec<Timestamp>, why: &'static str, keep: &dyn Fn(Timestamp) -> bool| {
        plan.skipped.extend(due.iter().filter(|time| !keep(**time)).map(|time| (*time, why)));
        due.retain(|time| keep(*time));
    };
    if let Some(seconds) = spec.starting_deadline_seconds {
        let deadline = SignedDuration::from_secs(seconds);
        skip(&mut due, "it is later than startingDeadlineSeconds allows", &|time| {
            now.duration_since(time) <= deadline
        });
    }
    let latest = due.last().copied();
    match (spec.catch_up.unwrap_or_default(), policy) {
        (CatchUp::None, _) => skip(&mut due, "it was missed", &|time| now.duration_since(time) <= PUNCTUAL),
        // What waits in a queue was not missed.
        (_, ConcurrencyPolicy::Queue) | (CatchUp::All, ConcurrencyPolicy::Allow) => {}
        _ => skip(&mut due, "a later one is due as well", &|time| Some(time) == latest),
    }
    match policy {
        ConcurrencyPolicy::Allow => plan.create = due,
        ConcurrencyPolicy::Forbid if situation.active.is_empty() => plan.create = due,
        ConcurrencyPolicy::Forbid => skip(&mut due, "an earlier run goes on", &|_| false),
        ConcurrencyPolicy::Replace => {
            if !due.is_empty() {
                plan.terminate = situation.active.iter().copied().collect();
            }
            plan.create = due;
        }
        ConcurrencyPolicy::Queue => match due.first() {
            Some(&first) if situation.active.is_empty() => {
                plan.create = vec![first];
                plan.decided = first;
            }
            // Decided when the earlier run has ended.
            Some(&first) => {
                let before = first.saturating_add(SignedDuration::from_secs(-1)).unwrap_or(first);
                plan.decided = situation.decided.max(before);
            }
            None => {}
        },
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().expect("a timestamp")
    }

    fn hourly(policy: ConcurrencyPolicy, catch_up: CatchUp) -> ObservatorySpec {
        ObservatorySpec {
            schedule: Some("0 * * * *".to_owned()),
            concurrency_policy: Some(policy),
            catch_up: Some(catch_up),
            max_concurrent: 10,
            ..ObservatorySpec::default()
        }
    }

    fn planned(spec: &ObservatorySpec, decided: &str, now: &str, active: &[&str]) -> Plan {
        let active: BTreeSet<Timestamp> = active.iter().map(|text| at(text)).collect();
        let situation = Situation { decided: at(decided), now: at(now), existing: active.clone(), active };
        plan(spec, &Clockwork::new(spec).expect("a schedule"), &situation)
    }

    #[test]
    fn a_time_makes_one_run() {
        let spec = hourly(ConcurrencyPolicy::Allow, CatchUp::Latest);
        let first = planned(&spec, "00:30:00", "01:00:00", &[]);
        assert_eq!((first.create, first.decided), (vec![at("01:00:00")], at("01:00:00")));
        let again = planned(&spec, "01:00:00", "01:00:00", &[]);
        assert!(again.create.is_empty());
        // Made before a crash, and not written down.
        assert!(planned(&spec, "00:30:00", "01:00:05", &["01:00:00"]).create.is_empty());
    }

    #[test]
    fn of_missed_times_the_latest_is_made_up_for_unless_told_otherwise() {
        let latest = planned(&hourly(ConcurrencyPolicy::Allow, CatchUp::Latest), "00:30:00", "04:10:00", &[]);
        assert_eq!(latest.create, [at("04:00:00")]);
        assert_eq!(latest.skipped.len(), 3);
        let none = planned(&hourly(ConcurrencyPolicy::Allow, CatchUp::None), "00:30:00", "04:10:00", &[]);
        assert!(none.create.is_empty());
        assert_eq!(none.decided, at("04:00:00"));
        let all = planned(&hourly(ConcurrencyPolicy::Allow, CatchUp::All), "00:30:00", "04:10:00", &[]);
        assert_eq!(all.create.len(), 4);
    }

    #[test]
    fn a_deadline_leaves_out_what_is_too_late() {
        let mut spec = hourly(ConcurrencyPolicy::Allow, CatchUp::All);
        spec.starting_deadline_seconds = Some(3600);
        assert_eq!(planned(&spec, "00:30:00", "04:10:00", &[]).create, [at("04:00:00")]);
    }

    #[test]
    fn policies_say_what_happens_while_a_run_goes_on() {
        let with = |policy| planned(&hourly(policy, CatchUp::Latest), "01:00:00", "02:00:00", &["01:00:00"]);
        assert_eq!(with(ConcurrencyPolicy::Allow).create, [at("02:00:00")]);
        let forbid = with(ConcurrencyPolicy::Forbid);
        assert!(forbid.create.is_empty());
        assert_eq!((forbid.decided, forbid.skipped.len()), (at("02:00:00"), 1));
        let replace = with(ConcurrencyPolicy::Replace);
        assert_eq!((replace.create, replace.terminate), (vec![at("02:00:00")], vec![at("01:00:00")]));
        let queue = with(ConcurrencyPolicy::Queue);
        assert!(queue.create.is_empty());
        assert!(queue.decided < at("02:00:00"), "it is still to come");
    }

    #[test]
    fn a_queue_is_worked_off_in_order() {
        let spec = hourly(ConcurrencyPolicy::Queue, CatchUp::Latest);
        let first = planned(&spec, "01:00:00", "04:10:00", &[]);
        assert_eq!((first.create, first.decided), (vec![at("02:00:00")], at("02:00:00")));
        let next = planned(&spec, "02:00:00", "04:20:00", &[]);
        assert_eq!(next.create, [at("03:00:00")]);
    }

    #[test]
    fn times_during_a_suspension_are_not_missed() {
        let mut spec = hourly(ConcurrencyPolicy::Allow, CatchUp::All);
        spec.suspend = true;
        let plan = planned(&spec, "00:30:00", "04:10:00", &[]);
        assert!(plan.create.is_empty());
        assert_eq!(plan.decided, at("04:10:00"));
    }

    #[test]
    fn several_schedules_count_a_common_time_once() {
        let mut spec = hourly(ConcurrencyPolicy::Allow, CatchUp::All);
        spec.schedules = vec!["*/30 * * * *".to_owned()];
        let plan = planned(&spec, "00:45:00", "02:00:00", &[]);
        assert_eq!(plan.create, [at("01:00:00"), at("01:30:00"), at("02:00:00")]);
    }

    #[test]
    fn after_a_year_of_silence_the_latest_hundred_are_found_at_once() {
        let spec = ObservatorySpec { schedule: Some("* * * * *".to_owned()), ..ObservatorySpec::default() };
        let now: Timestamp = "2027-01-01T00:00:00Z".parse().expect("a timestamp");
        let due = Clockwork::new(&spec).expect("a schedule").due(at("00:00:00"), now);
        assert_eq!((due.len(), due.last()), (100, Some(&now)));
    }
}
