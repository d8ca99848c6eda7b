//! What to do next with a pod: one pure function from what is known to what should happen.

use tokio::time::Instant;

use super::state::{ContainerState, RestartPolicy, Role, Step};

/// What the pod is meant to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Run.
    Run,
    /// End; nothing is started any more.
    End,
}

/// What should happen now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    /// Containers to start, by position.
    pub(crate) start: Vec<usize>,
    /// Containers to stop, by position.
    pub(crate) stop: Vec<usize>,
    /// When to look again, if nothing happens before.
    pub(crate) wake: Option<Instant>,
    /// Whether nothing runs and nothing ever will again.
    pub(crate) over: bool,
}

/// Decides.
pub(crate) fn plan(
    containers: &[ContainerState],
    policy: RestartPolicy,
    intent: Intent,
    now: Instant,
) -> Plan {
    let mut plan = Plan::default();
    match intent {
        Intent::Run => run(containers, policy, now, &mut plan),
        Intent::End => end(containers, &mut plan),
    }
    plan
}

fn run(containers: &[ContainerState], policy: RestartPolicy, now: Instant, plan: &mut Plan) {
    if is_over(containers, policy) {
        return end(containers, plan);
    }
    for (position, container) in containers.iter().enumerate() {
        if container.role == Role::Main {
            break;
        }
        match (&container.step, container.role) {
            (Step::Waiting { until, .. }, _) => {
                due(position, *until, now, plan);
                return keep_sidecars(containers, position, now, plan);
            }
            (Step::Starting { .. }, _) => {
                return keep_sidecars(containers, position, now, plan);
            }
            (Step::Running { .. }, Role::Sidecar) if container.started => {}
            (Step::Running { .. }, _) => return keep_sidecars(containers, position, now, plan),
            (Step::Ended(_), _) => {}
        }
    }
    for (position, container) in containers.iter().enumerate() {
        if container.role == Role::Main
            && let Step::Waiting { until, .. } = container.step
        {
            due(position, until, now, plan);
        }
    }
}

/// Sidecars before `position` are started again while a later container holds up the rest.
fn keep_sidecars(containers: &[ContainerState], position: usize, now: Instant, plan: &mut Plan) {
    for (earlier, container) in containers[..position].iter().enumerate() {
        if container.role == Role::Sidecar
            && let Step::Waiting { until, .. } = container.step
        {
            due(earlier, until, now, plan);
        }
    }
}

fn due(position: usize, until: Option<Instant>, now: Instant, plan: &mut Plan) {
    match until {
        Some(until) if until > now => {
            plan.wake = Some(plan.wake.map_or(until, |wake| wake.min(until)));
        }
        _ => plan.start.push(position),
    }
}

/// Whether the pod has done what it is there for, or never will: its main containers have all
/// ended for good, or an init container has failed for good. Sidecars do not count.
pub(crate) fn is_over(containers: &[ContainerState], policy: RestartPolicy) -> bool {
    mains_are_over(containers, policy)
        || containers.iter().any(|one| one.role == Role::Init && failed_for_good(one, policy))
}

fn mains_are_over(containers: &[ContainerState], policy: RestartPolicy) -> bool {
    let mut mains = containers.iter().filter(|one| one.role == Role::Main).peekable();
    mains.peek().is_some()
        && mains.all(|one| match &one.step {
            Step::Ended(ended) => !policy.restarts(one.role, ended.code),
            _ => false,
        })
}

/// Whether an init container has failed and is not tried again.
fn failed_for_good(container: &ContainerState, policy: RestartPolicy) -> bool {
    match &container.step {
        Step::Ended(ended) => ended.code != 0 && !policy.restarts(container.role, ended.code),
        _ => false,
    }
}

/// Main containers end first, then sidecars from the last to the first: each may need the ones
/// before it until its own end.
fn end(containers: &[ContainerState], plan: &mut Plan) {
    let running = |role: fn(Role) -> bool| {
        containers
            .iter()
            .enumerate()
            .filter(move |(_, one)| role(one.role) && one.run().is_some())
            .map(|(position, _)| position)
    };
    plan.stop = running(|role| role != Role::Sidecar).collect();
    if plan.stop.is_empty() {
        plan.stop = running(|role| role == Role::Sidecar).next_back().into_iter().collect();
    }
    plan.over = plan.stop.is_empty();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::super::state::Ended;
    use super::*;
    use crate::runtime::Exit;

    fn now() -> Instant {
        Instant::now()
    }

    fn running(container: &mut ContainerState, run: u64) {
        container.step = Step::Running { run, since: Timestamp::UNIX_EPOCH, at: now() };
        container.started = true;
    }

    fn ended(container: &mut ContainerState, code: i32) {
        let epoch = Timestamp::UNIX_EPOCH;
        container.step = Step::Ended(Ended::new(Exit::Code(code), None, epoch));
    }

    fn containers(roles: &[Role]) -> Vec<ContainerState> {
        roles
            .iter()
            .enumerate()
            .map(|(number, role)| ContainerState::new(&number.to_string(), *role))
            .collect()
    }

    fn decide(containers: &[ContainerState], policy: RestartPolicy) -> Plan {
        plan(containers, policy, Intent::Run, now())
    }

    #[test]
    fn init_containers_run_one_after_the_other_and_before_the_rest() {
        let mut pod = containers(&[Role::Init, Role::Init, Role::Main, Role::Main]);
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [0]);
        running(&mut pod[0], 1);
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [0; 0]);
        ended(&mut pod[0], 0);
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [1]);
        ended(&mut pod[1], 0);
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [2, 3]);
    }

    #[test]
    fn a_sidecar_that_has_started_lets_the_next_one_start() {
        let mut pod = containers(&[Role::Sidecar, Role::Main]);
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [0]);
        running(&mut pod[0], 1);
        pod[0].started = false;
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [0; 0]);
        pod[0].started = true;
        assert_eq!(decide(&pod, RestartPolicy::Always).start, [1]);
    }

    #[test]
    fn sidecars_stop_once_the_main_containers_are_done() {
        let mut pod = containers(&[Role::Sidecar, Role::Sidecar, Role::Main]);
        running(&mut pod[0], 1);
        running(&mut pod[1], 2);
        ended(&mut pod[2], 0);
        assert_eq!(decide(&pod, RestartPolicy::Never).stop, [1]);
        ended(&mut pod[1], 0);
        assert_eq!(decide(&pod, RestartPolicy::Never).stop, [0]);
        ended(&mut pod[0], 0);
        assert!(decide(&pod, RestartPolicy::Never).over);
    }

    #[test]
    fn a_container_that_waits_for_its_delay_wakes_the_pod_then() {
        let mut pod = containers(&[Role::Main]);
        let later = now() + Duration::from_secs(10);
        pod[0].step = Step::Waiting { reason: "CrashLoopBackOff", message: None, until: Some(later) };
        let decided = decide(&pod, RestartPolicy::Always);
        assert_eq!((decided.start.len(), decided.wake), (0, Some(later)));
        let decided = plan(&pod, RestartPolicy::Always, Intent::Run, later);
        assert_eq!(decided.start, [0]);
    }

    #[test]
    fn a_failed_init_container_ends_a_pod_that_never_restarts() {
        let mut pod = containers(&[Role::Init, Role::Main]);
        ended(&mut pod[0], 1);
        assert!(decide(&pod, RestartPolicy::Never).over);
    }

    #[test]
    fn nothing_starts_once_the_pod_is_to_end() {
        let mut pod = containers(&[Role::Main, Role::Main]);
        running(&mut pod[0], 1);
        let decided = plan(&pod, RestartPolicy::Always, Intent::End, now());
        assert_eq!((decided.start.len(), decided.stop, decided.over), (0, vec![0], false));
    }
}
