//! What is checked before a workflow is stored: everything that `steer workflow lint` finds.

use steersman::Error;
use steersman::webhook::{Admission, Findings, Validator, Webhooks};

use crate::dag::check;
use crate::types::Observatory;

/// Adds the webhooks of Observatories.
#[must_use]
pub fn webhooks(webhooks: Webhooks) -> Webhooks {
    webhooks.validator(Workflows)
}

/// Judges workflows.
struct Workflows;

impl Validator for Workflows {
    type Object = Observatory;

    async fn create(&self, workflow: &Observatory, _: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        for problem in check(&workflow.spec) {
            findings.wrong(problem.place.to_string(), problem.message);
        }
        Ok(findings)
    }

    async fn update(
        &self,
        workflow: &Observatory,
        old: &Observatory,
        admission: &Admission,
    ) -> Result<Findings, Error> {
        // Whoever only removes a finalizer or adds a label must not be held up by an old spec.
        if workflow.spec == old.spec || workflow.metadata.deletion_timestamp.is_some() {
            return Ok(Findings::new());
        }
        self.create(workflow, admission).await
    }
}
