//! What is checked before an ElastiService is stored.

use jiff::Timestamp;
use serde_json::Value;
use steersman::Error;
use steersman::webhook::{Admission, Findings, Validator, Webhooks};

use crate::period;
use crate::types::{ElastiService, ElastiServiceSpec, TriggerType};

/// Adds the webhooks of ElastiServices.
#[must_use]
pub fn webhooks(webhooks: Webhooks) -> Webhooks {
    webhooks.validator(Services)
}

/// Judges ElastiServices.
struct Services;

impl Validator for Services {
    type Object = ElastiService;

    async fn create(&self, service: &ElastiService, _: &Admission) -> Result<Findings, Error> {
        Ok(check(&service.spec))
    }

    async fn update(
        &self,
        service: &ElastiService,
        old: &ElastiService,
        admission: &Admission,
    ) -> Result<Findings, Error> {
        // Whoever only removes a finalizer or adds a label must not be held up by an old spec.
        if service.spec == old.spec || service.metadata.deletion_timestamp.is_some() {
            return Ok(Findings::new());
        }
        self.create(service, admission).await
    }
}

fn check(spec: &ElastiServiceSpec) -> Findings {
    let mut findings = Findings::new();
    for (index, trigger) in spec.triggers.iter().enumerate() {
        if trigger.kind != TriggerType::Prometheus {
            continue;
        }
        for field in ["query", "threshold"] {
            let given = trigger.metadata.get(field).is_some_and(|value| !matches!(value, Value::Null));
            if !given {
                let why = "a Prometheus trigger asks a query and compares its answer with a threshold";
                findings.required(format!("spec.triggers[{index}].metadata.{field}"), why);
            }
        }
    }
    if let Some(wanted) = &spec.enabled_period
        && let Err(problem) = period::allows(wanted, Timestamp::UNIX_EPOCH)
    {
        let (field, why) = problem.split_once(": ").unwrap_or(("spec.enabledPeriod", &problem));
        findings.wrong(field, why);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn triggers_and_periods_that_make_no_sense_are_named_with_their_fields() {
        let spec: ElastiServiceSpec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "service": "web",
            "triggers": [{"type": "prometheus", "metadata": {"query": "up"}}],
            "enabledPeriod": {"duration": "long"},
        }))
        .expect("a spec");
        let problems: Vec<String> = check(&spec).problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "spec.triggers[0].metadata.threshold: Required value: a Prometheus trigger asks a query and \
                 compares its answer with a threshold",
                "spec.enabledPeriod.duration: Invalid value: \"long\" is not a duration; write one such as 8h or 1h30m",
            ]
        );
    }
}
