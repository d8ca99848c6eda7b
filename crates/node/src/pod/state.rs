//! What the node knows of a pod's containers. Data only; decisions are in [`super::plan`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState as ApiState, ContainerStatus, Pod};
use tokio::time::Instant;

use crate::runtime::Exit;

/// A container's part in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that stays: the next one starts as soon as this one has.
    Sidecar,
    /// What the pod is there for.
    Main,
}

/// When containers are started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// That of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    /// Whether a container of this role is started again after it ended.
    pub(crate) fn restarts(self, role: Role, code: i32) -> bool {
        match (role, self) {
            (Role::Sidecar, _) => true,
            (Role::Init, RestartPolicy::Never) => false,
            (Role::Init, _) => code != 0,
            (Role::Main, RestartPolicy::Always) => true,
            (Role::Main, RestartPolicy::OnFailure) => code != 0,
            (Role::Main, RestartPolicy::Never) => false,
        }
    }
}

/// One container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerState {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) step: Step,
    /// How it ended last, when it has been started again or waits for that.
    pub(crate) last: Option<Ended>,
    /// How often it was started again.
    pub(crate) restarts: i32,
    /// Whether it was ever started, so that the next start is a restart.
    pub(crate) ran: bool,
    /// What the readiness probe says; without one, that it runs.
    pub(crate) ready: bool,
    /// What the startup probe says; without one, that it runs.
    pub(crate) started: bool,
    pub(crate) backoff: Backoff,
    /// Identifies this run of it in the API.
    pub(crate) id: Option<String>,
}

/// Where a container stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Not started, and why.
    Waiting {
        reason: &'static str,
        message: Option<String>,
        /// Not before; `None` as soon as its turn comes.
        until: Option<Instant>,
    },
    /// The runtime was told to start it.
    Starting { run: u64, since: Timestamp },
    /// It runs.
    Running { run: u64, since: Timestamp, at: Instant },
    /// It ended and is not (yet) started again.
    Ended(Ended),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: Option<String>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
    pub(crate) id: Option<String>,
}

impl Ended {
    /// From what the runtime says.
    pub(crate) fn new(exit: Exit, started: Option<Timestamp>, finished: Timestamp) -> Self {
        let signal = match exit {
            Exit::Signal(signal) => Some(signal),
            Exit::Code(_) => None,
        };
        let reason = if exit.code() == 0 { "Completed" } else { "Error" };
        Ended {
            code: exit.code(),
            signal,
            reason: reason.to_string(),
            message: None,
            started,
            finished,
            id: None,
        }
    }
}

/// Delays between restarts: none before the first, then 10 s, doubling to 5 min; forgotten once
/// a run has lasted 10 min. The kubelet's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_secs(10);
    const LONGEST: Duration = Duration::from_secs(300);
    const FORGET: Duration = Duration::from_secs(600);

    /// The delay before the next start, after a run that lasted `lasted`.
    pub(crate) fn next(&mut self, lasted: Option<Duration>) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= Self::FORGET) {
            self.failures = 0;
        }
        let delay = match self.failures {
            0 => Duration::ZERO,
            n => Self::FIRST.saturating_mul(1 << (n - 1).min(5)).min(Self::LONGEST),
        };
        self.failures += 1;
        delay
    }

    /// As [`Backoff::next`], without the free first try.
    pub(crate) fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.max(1);
        self.next(None)
    }

    /// One that already counts this many restarts.
    pub(crate) fn after(restarts: i32) -> Self {
        Backoff { failures: u32::try_from(restarts).unwrap_or(0).min(6) }
    }
}

impl ContainerState {
    /// One that waits for its first start.
    pub(crate) fn new(name: &str, role: Role) -> Self {
        ContainerState {
            name: name.to_string(),
            role,
            step: Step::Waiting { reason: waiting_reason(role), message: None, until: None },
            last: None,
            restarts: 0,
            ran: false,
            ready: false,
            started: false,
            backoff: Backoff::default(),
            id: None,
        }
    }

    /// The number of the run, while the runtime has one.
    pub(crate) fn run(&self) -> Option<u64> {
        match self.step {
            Step::Starting { run, .. } | Step::Running { run, .. } => Some(run),
            Step::Waiting { .. } | Step::Ended(_) => None,
        }
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.step, Step::Running { .. })
    }
}

/// Why a container that was never started is not running.
fn waiting_reason(role: Role) -> &'static str {
    match role {
        Role::Main => "ContainerCreating",
        Role::Init | Role::Sidecar => "PodInitializing",
    }
}

/// A pod's containers in the order in which they start, with what an earlier node left in the
/// pod's status. Containers that ran then are gone now: their processes end with their node.
pub(crate) fn from_pod(pod: &Pod, now: Timestamp) -> Vec<ContainerState> {
    let policy = RestartPolicy::of(pod);
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init_seen = status.and_then(|s| s.init_container_statuses.as_deref()).unwrap_or_default();
    let main_seen = status.and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    let role = |container: &Container| match container.restart_policy.as_deref() {
        Some("Always") => Role::Sidecar,
        _ => Role::Init,
    };
    let find = |seen: &[ContainerStatus], name: &str| seen.iter().find(|s| s.name == name).cloned();
    init.iter()
        .map(|one| (one, role(one), find(init_seen, &one.name)))
        .chain(main.iter().map(|one| (one, Role::Main, find(main_seen, &one.name))))
        .map(|(container, role, seen)| resume(&container.name, role, seen.as_ref(), policy, now))
        .collect()
}

fn resume(
    name: &str,
    role: Role,
    seen: Option<&ContainerStatus>,
    policy: RestartPolicy,
    now: Timestamp,
) -> ContainerState {
    let mut state = ContainerState::new(name, role);
    let Some(seen) = seen else { return state };
    state.restarts = seen.restart_count;
    state.backoff = Backoff::after(seen.restart_count);
    state.last = seen.last_state.as_ref().and_then(ended);
    let Some(before) = &seen.state else { return state };
    let over = match (ended(before), &before.running) {
        (Some(ended), _) => ended,
        (None, Some(running)) => Ended {
            code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".to_string(),
            message: Some("The node that ran the container was stopped".to_string()),
            started: running.started_at.as_ref().map(|time| time.0),
            finished: now,
            id: seen.container_id.clone(),
        },
        (None, None) => return state,
    };
    let restarts = policy.restarts(role, over.code);
    state.id.clone_from(&seen.container_id);
    match (role, restarts) {
        // The pod begins anew, so its init containers run again.
        (Role::Init, false) if over.code == 0 && policy != RestartPolicy::Never => {}
        (_, true) => {
            state.last = Some(over);
            state.ran = true;
        }
        (_, false) => state.step = Step::Ended(over),
    }
    state
}

fn ended(state: &ApiState) -> Option<Ended> {
    let terminated = state.terminated.as_ref()?;
    Some(Ended {
        code: terminated.exit_code,
        signal: terminated.signal,
        reason: terminated.reason.clone().unwrap_or_else(|| "Error".to_string()),
        message: terminated.message.clone(),
        started: terminated.started_at.as_ref().map(|time| time.0),
        finished: terminated.finished_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        id: terminated.container_id.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_delayed_as_the_kubelet_does() {
        let mut backoff = Backoff::default();
        let delays: Vec<u64> = (0..9).map(|_| backoff.next(None).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(backoff.next(Some(Duration::from_secs(601))), Duration::ZERO);
    }

    #[test]
    fn an_image_that_cannot_be_had_is_not_tried_again_at_once() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next_delay(), Duration::from_secs(10));
        assert_eq!(backoff.next_delay(), Duration::from_secs(20));
    }

    #[test]
    fn the_restart_policy_decides_by_role_and_exit_code() {
        use RestartPolicy::{Always, Never, OnFailure};
        let cases = [
            (Always, Role::Main, 0, true),
            (Always, Role::Main, 1, true),
            (OnFailure, Role::Main, 0, false),
            (OnFailure, Role::Main, 1, true),
            (Never, Role::Main, 1, false),
            (Always, Role::Init, 0, false),
            (Always, Role::Init, 1, true),
            (Never, Role::Init, 1, false),
            (Never, Role::Sidecar, 0, true),
        ];
        for (policy, role, code, expected) in cases {
            assert_eq!(policy.restarts(role, code), expected, "{policy:?} {role:?} {code}");
        }
    }

    fn pod(policy: &str, state: &serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "spec": {"restartPolicy": policy, "containers": [{"name": "c"}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                "state": state,
            }]},
        }))
        .expect("a pod")
    }

    #[test]
    fn a_container_that_ran_on_an_earlier_node_is_started_again() {
        let running = serde_json::json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let states = from_pod(&pod("Always", &running), Timestamp::UNIX_EPOCH);
        assert_eq!((states[0].restarts, states[0].ran), (2, true));
        assert!(matches!(states[0].step, Step::Waiting { .. }));
        let last = states[0].last.as_ref().expect("its last end");
        assert_eq!((last.code, last.reason.as_str()), (137, "ContainerStatusUnknown"));

        let states = from_pod(&pod("Never", &running), Timestamp::UNIX_EPOCH);
        assert!(matches!(&states[0].step, Step::Ended(ended) if ended.code == 137));
    }

    #[test]
    fn a_container_that_was_done_stays_done() {
        let done = serde_json::json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let states = from_pod(&pod("OnFailure", &done), Timestamp::UNIX_EPOCH);
        assert!(matches!(&states[0].step, Step::Ended(ended) if ended.code == 0));
    }
}
