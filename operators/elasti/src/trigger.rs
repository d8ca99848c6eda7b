//! Whether somebody needs a service.

use crate::dial::Dial;
use crate::options::ElastiOptions;
use crate::prometheus::{Prometheus, Question};
use crate::types::{Trigger, TriggerType};
use serde_json::Value;
use std::net::IpAddr;

/// What the triggers of an ElastiService say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody needs it.
    Idle,
    /// Somebody did a moment ago: reason to stay awake, none to wake up.
    Recent,
    /// Somebody needs it.
    Busy,
    /// It cannot be said, and why; nothing is done then.
    Unknown(String),
}

impl Verdict {
    /// What two triggers say together: one that needs it is enough, doubt forbids sleep.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Busy, _) | (_, Self::Busy) => Self::Busy,
            (unknown @ Self::Unknown(_), _) | (_, unknown @ Self::Unknown(_)) => unknown,
            (Self::Recent, _) | (_, Self::Recent) => Self::Recent,
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

/// Asks triggers.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    /// None where the machine's certificate authorities cannot be read, and why.
    prometheus: Result<Prometheus, String>,
}

/// The service about which triggers are asked.
pub(crate) struct Case<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) service: &'a str,
    pub(crate) triggers: &'a [Trigger],
    /// In seconds.
    pub(crate) cooldown: i32,
    pub(crate) resolvers: &'a [IpAddr],
}

impl Judge {
    pub(crate) fn new(dial: Option<Dial>) -> Self {
        Self { prometheus: Prometheus::new(dial).map_err(|error| format!("TLS is not to be had: {error}")) }
    }

    fn prometheus(&self) -> Result<&Prometheus, String> {
        self.prometheus.as_ref().map_err(Clone::clone)
    }

    /// Asks all triggers of a service.
    pub(crate) async fn ask(&self, case: &Case<'_>, options: &ElastiOptions) -> Verdict {
        let mut together = None;
        for (index, trigger) in case.triggers.iter().enumerate() {
            let answer = match trigger.kind {
                TriggerType::Prometheus => self.ask_prometheus(trigger, case, options).await,
                TriggerType::Resolver => self.ask_resolvers(case, options).await,
            };
            let answer =
                answer.unwrap_or_else(|why| Verdict::Unknown(format!("spec.triggers[{index}]: {why}")));
            together = Some(match together {
                Some(before) => Verdict::and(before, answer),
                None => answer,
            });
        }
        together.unwrap_or_else(|| {
            Verdict::Unknown("spec.triggers is empty, so that nothing says when it may sleep".into())
        })
    }

    async fn ask_prometheus(
        &self,
        trigger: &Trigger,
        case: &Case<'_>,
        options: &ElastiOptions,
    ) -> Result<Verdict, String> {
        let question = Question::read(&trigger.metadata, options)?;
        let value = self.prometheus()?.value(&question, &question.query).await?;
        let Some(value) = value else {
            return Ok(Verdict::Unknown("the query gives no number (NaN)".into()));
        };
        if value >= question.threshold {
            return Ok(Verdict::Busy);
        }
        // A server that was down for a while knows nothing of that while.
        let window = case.cooldown.max(1);
        // Without a step Prometheus looks once a minute, and so perhaps never within a short window.
        let step = (window / 20).clamp(1, 60);
        let filter = &question.uptime_filter;
        let up = format!("min_over_time((max(up{{{filter}}}) or vector(0))[{window}s:{step}s])");
        match self.prometheus()?.value(&question, &up).await? {
            Some(up) if up >= 1.0 => Ok(Verdict::Idle),
            _ => Ok(Verdict::Unknown(format!(
                "{} was not up for all of the last {window} s by up{{{}}}",
                question.server, question.uptime_filter
            ))),
        }
    }

    /// What the resolvers have seen of the service.
    async fn ask_resolvers(&self, case: &Case<'_>, options: &ElastiOptions) -> Result<Verdict, String> {
        let mut together = Verdict::Idle;
        if case.resolvers.is_empty() {
            return Err("no resolver is ready to be asked".into());
        }
        let key = format!("{}/{}", case.namespace, case.service);
        for address in case.resolvers {
            let authority = std::net::SocketAddr::new(*address, options.resolver_port);
            let answer = self.prometheus()?.get(&format!("http://{authority}/activity"), &[]).await?;
            together = together.and(seen(&answer["services"][&key], case.cooldown));
        }
        Ok(together)
    }
}

/// What one resolver has seen.
fn seen(activity: &Value, cooldown: i32) -> Verdict {
    let count = |name: &str| activity[name].as_i64().unwrap_or(0);
    if count("held") > 0 || count("running") > 0 {
        return Verdict::Busy;
    }
    match activity["idleSeconds"].as_f64() {
        Some(idle) if idle < f64::from(cooldown) => Verdict::Recent,
        _ => Verdict::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_that_needs_it_is_enough_and_doubt_forbids_sleep() {
        use Verdict::{Busy, Idle, Recent};
        let unknown = || Verdict::Unknown("why".into());
        for (one, two, together) in [
            (Idle, Idle, Idle),
            (Idle, Recent, Recent),
            (Idle, unknown(), unknown()),
            (Recent, unknown(), unknown()),
            (unknown(), Busy, Busy),
            (Busy, Idle, Busy),
        ] {
            assert_eq!(one.clone().and(two.clone()), together);
            assert_eq!(two.and(one), together);
        }
    }

    #[test]
    fn a_resolver_knows_who_waits_and_who_has_just_left() {
        assert_eq!(seen(&json!({"held": 1, "running": 1}), 60), Verdict::Busy);
        assert_eq!(seen(&json!({"held": 0, "running": 2, "idleSeconds": 90.0}), 60), Verdict::Busy);
        assert_eq!(seen(&json!({"held": 0, "running": 0, "idleSeconds": 30.5}), 60), Verdict::Recent);
        assert_eq!(seen(&json!({"held": 0, "running": 0, "idleSeconds": 61.0}), 60), Verdict::Idle);
        assert_eq!(seen(&json!({"held": 0, "running": 0, "idleSeconds": 0.0}), 0), Verdict::Idle);
        assert_eq!(seen(&Value::Null, 60), Verdict::Idle);
    }
}
