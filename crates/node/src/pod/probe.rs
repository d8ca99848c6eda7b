//! Asking containers how they are: startup, readiness and liveness probes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::Instant;

use super::exec::Exec;
use super::http_get::{self, Target};
use crate::runtime::Network;

/// What a probe decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    /// As events spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }
}

/// What a probe has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Enough successes in a row.
    Healthy,
    /// One failure; not enough to act on.
    Failure(String),
    /// Enough failures in a row.
    Unhealthy(String),
}

/// How to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Http(Target),
    Tcp(SocketAddr),
    Exec(Vec<String>),
}

/// Why a question cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("{0}")]
    Invalid(String),
    #[error("this kind of probe is not supported by this node and is taken as passed")]
    Unsupported,
}

impl Question {
    /// That of a probe.
    pub(crate) fn of(probe: &Probe, container: &Container, address: IpAddr) -> Result<Self, QuestionError> {
        if let Some(action) = &probe.http_get {
            return Self::http(action, container, address);
        }
        if let Some(action) = &probe.tcp_socket {
            return Self::tcp(action, container, address);
        }
        match &probe.exec {
            Some(action) => Ok(Question::Exec(action.command.clone().unwrap_or_default())),
            None => Err(QuestionError::Unsupported),
        }
    }

    /// That of an HTTP action.
    pub(crate) fn http(
        action: &HTTPGetAction,
        container: &Container,
        address: IpAddr,
    ) -> Result<Self, QuestionError> {
        let headers = action.http_headers.iter().flatten();
        Ok(Question::Http(Target {
            tls: action.scheme.as_deref() == Some("HTTPS"),
            address: SocketAddr::new(host(action.host.as_deref(), address)?, port(&action.port, container)?),
            path: action.path.clone().unwrap_or_default(),
            headers: headers.map(|one| (one.name.clone(), one.value.clone())).collect(),
        }))
    }

    fn tcp(action: &TCPSocketAction, container: &Container, address: IpAddr) -> Result<Self, QuestionError> {
        let host = host(action.host.as_deref(), address)?;
        Ok(Question::Tcp(SocketAddr::new(host, port(&action.port, container)?)))
    }

    /// Asks once.
    pub(crate) async fn ask(&self, network: &Network, exec: &Exec, timeout: Duration) -> Result<(), String> {
        let late = |_| format!("timed out after {} s", timeout.as_secs());
        match self {
            Question::Http(target) => {
                let status = tokio::time::timeout(timeout, http_get::status(network, target))
                    .await
                    .map_err(late)??;
                match status {
                    200..=399 => Ok(()),
                    code => Err(format!("HTTP probe failed with statuscode: {code}")),
                }
            }
            Question::Tcp(address) => tokio::time::timeout(timeout, network.connect(*address))
                .await
                .map_err(late)?
                .map(drop)
                .map_err(|error| format!("dial tcp {address}: {error}")),
            Question::Exec(argv) => {
                let outcome = exec.run(argv.clone(), timeout).await?;
                match outcome.code {
                    0 => Ok(()),
                    _ => Err(outcome.output),
                }
            }
        }
    }
}

fn host(named: Option<&str>, address: IpAddr) -> Result<IpAddr, QuestionError> {
    match named.filter(|name| !name.is_empty()) {
        None => Ok(address),
        Some("localhost") => Ok(IpAddr::from([127, 0, 0, 1])),
        Some(name) => name
            .parse()
            .map_err(|_| QuestionError::Invalid(format!("probe host \"{name}\" is not an address"))),
    }
}

/// A port by number or by its name in the container.
fn port(port: &IntOrString, container: &Container) -> Result<u16, QuestionError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok()),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| QuestionError::Invalid(format!("couldn't find port: {port:?}")))
}

/// How often to ask and how to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) kind: Kind,
    initial_delay: Duration,
    period: Duration,
    pub(crate) timeout: Duration,
    successes: u32,
    failures: u32,
}

impl Schedule {
    /// That of a probe, with Kubernetes' defaults.
    pub(crate) fn of(kind: Kind, probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            let value = value.and_then(|value| u64::try_from(value).ok());
            Duration::from_secs(value.filter(|value| *value > 0).unwrap_or(default))
        };
        let count = |value: Option<i32>, default: u32| {
            let value = value.and_then(|value| u32::try_from(value).ok());
            value.filter(|value| *value > 0).unwrap_or(default)
        };
        Schedule {
            kind,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        }
    }
}

/// Counts answers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judge {
    schedule: Schedule,
    successes: u32,
    failures: u32,
    ever: bool,
}

impl Judge {
    pub(crate) fn new(schedule: Schedule) -> Self {
        Judge { schedule, successes: 0, failures: 0, ever: false }
    }

    /// What an answer means; `None` when there is nothing new to say.
    pub(crate) fn hear(&mut self, answer: Result<(), String>) -> Option<Finding> {
        match answer {
            Ok(()) => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                self.ever = true;
                (self.successes == self.schedule.successes).then_some(Finding::Healthy)
            }
            Err(message) => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                match self.failures >= self.schedule.failures {
                    true => Some(Finding::Unhealthy(message)),
                    false => Some(Finding::Failure(message)),
                }
            }
        }
    }

    /// How long to wait before the next question. A container that was never healthy is asked
    /// for readiness more often at first: most are ready long before a whole period is over.
    pub(crate) fn pause(&self) -> Duration {
        const SOON: Duration = Duration::from_millis(50);
        match self.schedule.kind {
            Kind::Readiness if !self.ever => {
                let growing = SOON.saturating_mul(1 << self.failures.min(16));
                growing.min(self.schedule.period)
            }
            _ => self.schedule.period,
        }
    }

    /// When to ask first.
    pub(crate) fn first(&self, now: Instant) -> Instant {
        now + self.schedule.initial_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: Kind, probe: serde_json::Value) -> Schedule {
        Schedule::of(kind, &serde_json::from_value(probe).expect("a probe"))
    }

    #[test]
    fn thresholds_are_counted_in_a_row() {
        let probe = serde_json::json!({"failureThreshold": 2, "successThreshold": 2});
        let mut judge = Judge::new(schedule(Kind::Readiness, probe));
        let fail = || Err("no".to_string());
        assert_eq!(judge.hear(Ok(())), None);
        assert_eq!(judge.hear(Ok(())), Some(Finding::Healthy));
        assert_eq!(judge.hear(Ok(())), None);
        assert_eq!(judge.hear(fail()), Some(Finding::Failure("no".into())));
        assert_eq!(judge.hear(fail()), Some(Finding::Unhealthy("no".into())));
        assert_eq!(judge.hear(Ok(())), None);
        assert_eq!(judge.hear(Ok(())), Some(Finding::Healthy));
    }

    #[test]
    fn a_container_that_was_never_ready_is_asked_soon_again() {
        let mut judge = Judge::new(schedule(Kind::Readiness, serde_json::json!({})));
        assert_eq!(judge.pause(), Duration::from_millis(50));
        for _ in 0..20 {
            judge.hear(Err(String::new()));
        }
        assert_eq!(judge.pause(), Duration::from_secs(10));
        let live = Judge::new(schedule(Kind::Liveness, serde_json::json!({"periodSeconds": 3})));
        assert_eq!(live.pause(), Duration::from_secs(3));
    }

    #[test]
    fn a_port_is_found_by_number_or_name() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"name": "web", "containerPort": 8080}],
        }))
        .expect("a container");
        assert_eq!(port(&IntOrString::Int(80), &container), Ok(80));
        assert_eq!(port(&IntOrString::String("web".into()), &container), Ok(8080));
        assert!(port(&IntOrString::String("none".into()), &container).is_err());
        assert!(port(&IntOrString::Int(0), &container).is_err());
    }
}
