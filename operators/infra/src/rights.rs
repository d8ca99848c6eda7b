//! What the operator asks of the API server beyond what its controllers declare.

use steersman::Rule;

use crate::{ids, input};

pub(crate) fn beyond() -> Vec<Rule> {
    let kinds = |verbs: &[&str]| {
        ["resources", "resourcetypes"].map(|kind| Rule::on("infra.steersman.io", &[kind], verbs))
    };
    let [resources, types] = kinds(&["create", "patch", "update", "delete"]);
    let maps = |verbs: &[&str]| Rule::on("", &["configmaps"], verbs).in_own_namespace();
    vec![
        resources.because("The REST API creates, changes and deletes them for its users."),
        types,
        maps(&["get", "update"])
            .named(&[ids::COUNTERS, input::PLACES, input::intake::TOMBSTONES])
            .because("The counter of ids, and what inputs remember."),
        maps(&["create"]),
    ]
}
