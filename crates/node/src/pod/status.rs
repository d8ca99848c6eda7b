//! The pod's status as the API shows it: a pure function of what the node knows.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::state::{ContainerState, Ended, RestartPolicy, Role, Step};

/// What the status is made of besides the containers.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) containers: &'a [ContainerState],
    /// The pod's address, once it has one.
    pub(crate) address: Option<IpAddr>,
    pub(crate) host: IpAddr,
    pub(crate) start_time: Timestamp,
    /// Set when the node ended the pod itself: a phase of `Failed` with this reason and message.
    pub(crate) failed: Option<&'a (String, String)>,
    /// What was last reported, for the times of conditions that did not change.
    pub(crate) before: Option<&'a PodStatus>,
    pub(crate) now: Timestamp,
}

/// Puts the status together.
pub(crate) fn status(facts: &Facts<'_>) -> PodStatus {
    let (init, main): (Vec<&ContainerState>, Vec<&ContainerState>) =
        facts.containers.iter().partition(|one| one.role != Role::Main);
    let phase = phase(facts);
    let show = |states: &[&ContainerState]| -> Vec<ContainerStatus> {
        states.iter().map(|state| container_status(facts, state, &init)).collect()
    };
    PodStatus {
        phase: Some(phase.to_string()),
        conditions: Some(conditions(facts, phase, &init, &main)),
        reason: facts.failed.map(|(reason, _)| reason.clone()),
        message: facts.failed.map(|(_, message)| message.clone()),
        host_ip: Some(facts.host.to_string()),
        host_ips: Some(vec![HostIP { ip: facts.host.to_string() }]),
        pod_ip: facts.address.map(|address| address.to_string()),
        pod_ips: facts.address.map(|address| vec![PodIP { ip: address.to_string() }]),
        start_time: Some(Time(facts.start_time)),
        init_container_statuses: (!init.is_empty()).then(|| show(&init)),
        container_statuses: Some(show(&main)),
        observed_generation: facts.pod.metadata.generation,
        ..PodStatus::default()
    }
}

/// The phase, by the kubelet's rules.
pub(crate) fn phase(facts: &Facts<'_>) -> &'static str {
    if facts.failed.is_some() {
        return "Failed";
    }
    let policy = RestartPolicy::of(facts.pod);
    let failed_init = |one: &ContainerState| match &one.step {
        Step::Ended(ended) => ended.code != 0 && !policy.restarts(one.role, ended.code),
        _ => false,
    };
    let init: Vec<&ContainerState> = facts.containers.iter().filter(|one| one.role != Role::Main).collect();
    if init.iter().any(|one| one.role == Role::Init && failed_init(one)) {
        return "Failed";
    }
    let mains = facts.containers.iter().filter(|one| one.role == Role::Main);
    let (mut running, mut waiting, mut succeeded, mut failed) = (0, 0, 0, 0);
    for main in mains {
        match (&main.step, &main.last) {
            (Step::Running { .. }, _) => running += 1,
            (Step::Ended(ended), _) if ended.code == 0 => succeeded += 1,
            (Step::Ended(_), _) => failed += 1,
            (Step::Waiting { .. } | Step::Starting { .. }, Some(last)) if last.code == 0 => {
                succeeded += 1;
            }
            (Step::Waiting { .. } | Step::Starting { .. }, Some(_)) => failed += 1,
            (Step::Waiting { .. } | Step::Starting { .. }, None) => waiting += 1,
        }
    }
    if waiting > 0 || !initialized(&init) {
        return "Pending";
    }
    match policy {
        _ if running > 0 => "Running",
        RestartPolicy::Always => "Running",
        _ if failed == 0 && succeeded > 0 => "Succeeded",
        RestartPolicy::OnFailure => "Running",
        RestartPolicy::Never => "Failed",
    }
}

fn initialized(init: &[&ContainerState]) -> bool {
    init.iter().all(|one| match (&one.step, one.role) {
        (Step::Ended(ended), Role::Init) => ended.code == 0,
        (Step::Running { .. }, Role::Sidecar) => one.started,
        // It had started before it ended, else the main containers would not have.
        (_, Role::Sidecar) => one.last.is_some() || matches!(one.step, Step::Ended(_)),
        _ => false,
    })
}

fn conditions(
    facts: &Facts<'_>,
    phase: &str,
    init: &[&ContainerState],
    main: &[&ContainerState],
) -> Vec<PodCondition> {
    let initialized = phase == "Succeeded" || initialized(init);
    let unready: Vec<&str> = main
        .iter()
        .chain(init.iter().filter(|one| one.role == Role::Sidecar))
        .filter(|one| !(one.is_running() && one.ready))
        .map(|one| one.name.as_str())
        .collect();
    let over = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let containers_ready = match (over, unready.is_empty()) {
        (Some(reason), _) => Some((reason, String::new())),
        (None, true) => None,
        (None, false) => {
            Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))))
        }
    };
    let ready = match &containers_ready {
        None => unmet_gate(facts.pod),
        Some(unready) => Some(unready.clone()),
    };
    let uninitialized: Vec<&str> = init
        .iter()
        .filter(|one| !matches!(&one.step, Step::Ended(ended) if ended.code == 0))
        .filter(|one| !(one.role == Role::Sidecar && one.started))
        .map(|one| one.name.as_str())
        .collect();
    let not_initialized = (!initialized).then(|| {
        let names = uninitialized.join(" ");
        ("ContainersNotInitialized", format!("containers with incomplete status: [{names}]"))
    });
    let no_sandbox = facts.address.is_none().then(|| ("", String::new()));
    [
        ("PodReadyToStartContainers", no_sandbox),
        ("Initialized", not_initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", None),
    ]
    .into_iter()
    .map(|(kind, unmet)| condition(facts, kind, unmet))
    .collect()
}

/// The first readiness gate that nobody has opened.
fn unmet_gate(pod: &Pod) -> Option<(&'static str, String)> {
    let gates = pod.spec.as_ref()?.readiness_gates.as_deref()?;
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    let open =
        |kind: &str| conditions.into_iter().flatten().any(|one| one.type_ == kind && one.status == "True");
    let closed = gates.iter().map(|gate| gate.condition_type.as_str()).find(|kind| !open(kind))?;
    Some((
        "ReadinessGatesNotReady",
        format!("the status of pod readiness gate \"{closed}\" is not \"True\", but False"),
    ))
}

fn condition(facts: &Facts<'_>, kind: &str, unmet: Option<(&'static str, String)>) -> PodCondition {
    let value = if unmet.is_none() { "True" } else { "False" };
    let (reason, message) = unmet.unwrap_or_default();
    let known = |status: Option<&PodStatus>| -> Option<PodCondition> {
        let conditions = status?.conditions.as_deref()?;
        conditions.iter().find(|one| one.type_ == kind).cloned()
    };
    let before = known(facts.before).or_else(|| known(facts.pod.status.as_ref()));
    let since = before
        .filter(|before| before.status == value)
        .and_then(|before| before.last_transition_time)
        .unwrap_or(Time(facts.now));
    PodCondition {
        type_: kind.to_string(),
        status: value.to_string(),
        last_transition_time: Some(since),
        reason: (!reason.is_empty()).then(|| reason.to_string()),
        message: (!message.is_empty()).then_some(message),
        observed_generation: facts.pod.metadata.generation,
        ..PodCondition::default()
    }
}

fn container_status(facts: &Facts<'_>, state: &ContainerState, init: &[&ContainerState]) -> ContainerStatus {
    let spec = facts.pod.spec.as_ref();
    let image = spec
        .into_iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
        .find(|container| container.name == state.name)
        .and_then(|container| container.image.clone())
        .unwrap_or_default();
    let waits_for_init = state.role == Role::Main && !initialized(init);
    let shown = match &state.step {
        Step::Waiting { reason: "ContainerCreating", .. } if waits_for_init => {
            waiting("PodInitializing", None)
        }
        Step::Waiting { reason, message, .. } => waiting(reason, message.as_deref()),
        Step::Starting { .. } => waiting("ContainerCreating", None),
        Step::Running { since, .. } => ApiState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ApiState::default()
        },
        Step::Ended(ended) => terminated(ended),
    };
    let running = state.is_running();
    ContainerStatus {
        name: state.name.clone(),
        image_id: match (&state.step, &state.last) {
            (Step::Waiting { .. }, None) => String::new(),
            _ => format!("steersman://{image}"),
        },
        image,
        container_id: state.id.clone(),
        ready: match (state.role, &state.step) {
            (Role::Init, Step::Ended(ended)) => ended.code == 0,
            (Role::Init, _) => false,
            _ => running && state.ready,
        },
        started: Some(running && state.started),
        restart_count: state.restarts,
        state: Some(shown),
        last_state: state.last.as_ref().map(terminated),
        ..ContainerStatus::default()
    }
}

fn waiting(reason: &str, message: Option<&str>) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_string()),
            message: message.map(str::to_string),
        }),
        ..ApiState::default()
    }
}

fn terminated(ended: &Ended) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: ended.code,
            signal: ended.signal,
            reason: Some(ended.reason.clone()),
            message: ended.message.clone(),
            started_at: ended.started.map(Time),
            finished_at: Some(Time(ended.finished)),
            container_id: ended.id.clone(),
        }),
        ..ApiState::default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::state::from_pod;
    use super::*;
    use crate::runtime::Exit;

    fn pod(policy: &str) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "generation": 1},
            "spec": {
                "restartPolicy": policy,
                "initContainers": [{"name": "i", "image": "busybox"}],
                "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}],
            },
        }))
        .expect("a pod")
    }

    fn facts<'a>(pod: &'a Pod, containers: &'a [ContainerState]) -> Facts<'a> {
        Facts {
            pod,
            containers,
            address: Some(IpAddr::from([10, 244, 0, 2])),
            host: IpAddr::from([127, 0, 0, 1]),
            start_time: Timestamp::UNIX_EPOCH,
            failed: None,
            before: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// `i` and then `a`, `b`: `w` waits, `c` waits after a crash, `r` runs, a digit has ended.
    fn containers(pod: &Pod, steps: &str) -> Vec<ContainerState> {
        let epoch = Timestamp::UNIX_EPOCH;
        let mut states = from_pod(pod, epoch);
        for (state, step) in states.iter_mut().zip(steps.chars()) {
            match step {
                'w' => {}
                'c' => state.last = Some(Ended::new(Exit::Code(1), None, epoch)),
                'r' => {
                    state.step = Step::Running { run: 1, since: epoch, at: Instant::now() };
                    state.ready = true;
                    state.started = true;
                }
                digit => {
                    let code = i32::try_from(digit.to_digit(10).expect("a digit")).expect("small");
                    state.step = Step::Ended(Ended::new(Exit::Code(code), None, epoch));
                }
            }
        }
        states
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        let cases = [
            ("Always", "www", "Pending"),
            ("Always", "rww", "Pending"),
            ("Always", "0ww", "Pending"),
            ("Always", "0rw", "Pending"),
            ("Always", "0rr", "Running"),
            ("Always", "0rc", "Running"),
            ("Always", "0cc", "Running"),
            ("Always", "000", "Running"),
            ("OnFailure", "000", "Succeeded"),
            ("OnFailure", "00c", "Running"),
            ("Never", "00r", "Running"),
            ("Never", "001", "Failed"),
            ("Never", "000", "Succeeded"),
            ("Never", "1ww", "Failed"),
            ("Always", "cww", "Pending"),
        ];
        for (policy, steps, expected) in cases {
            let pod = pod(policy);
            let containers = containers(&pod, steps);
            assert_eq!(phase(&facts(&pod, &containers)), expected, "{policy} {steps}");
        }
    }

    fn value(status: &PodStatus, kind: &str) -> (String, Option<String>) {
        let conditions = status.conditions.as_deref().expect("conditions");
        let found = conditions.iter().find(|one| one.type_ == kind).expect("the condition");
        (found.status.clone(), found.message.clone())
    }

    #[test]
    fn a_pod_is_ready_when_every_container_is() {
        let pod = pod("Always");
        let mut states = containers(&pod, "0rr");
        assert_eq!(value(&status(&facts(&pod, &states)), "Ready").0, "True");
        states[2].ready = false;
        let shown = status(&facts(&pod, &states));
        let (ready, message) = value(&shown, "Ready");
        assert_eq!(ready, "False");
        assert_eq!(message.as_deref(), Some("containers with unready status: [b]"));
        assert_eq!(value(&shown, "Initialized").0, "True");
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let pod = pod("Always");
        let states = containers(&pod, "0rr");
        let first = status(&facts(&pod, &states));
        let later = Timestamp::from_second(1000).expect("a time");
        let second = status(&Facts { before: Some(&first), now: later, ..facts(&pod, &states) });
        assert_eq!(first.conditions, second.conditions);
    }

    #[test]
    fn a_pod_that_the_node_ended_has_failed_and_says_why() {
        let pod = pod("Always");
        let states = containers(&pod, "0rr");
        let failed = ("DeadlineExceeded".to_string(), "too long".to_string());
        let shown = status(&Facts { failed: Some(&failed), ..facts(&pod, &states) });
        assert_eq!(shown.phase.as_deref(), Some("Failed"));
        assert_eq!(shown.reason.as_deref(), Some("DeadlineExceeded"));
    }

    #[test]
    fn a_closed_readiness_gate_keeps_the_pod_unready() {
        let mut pod = pod("Always");
        let spec = pod.spec.as_mut().expect("spec");
        spec.readiness_gates =
            serde_json::from_value(serde_json::json!([{"conditionType": "x/y"}])).expect("gates");
        let states = containers(&pod, "0rr");
        let shown = status(&facts(&pod, &states));
        assert_eq!(value(&shown, "ContainersReady").0, "True");
        assert_eq!(value(&shown, "Ready").0, "False");
    }
}
