//! What the operator asks of the API server beyond what its controllers declare.

use steersman::Rule;

pub(crate) fn beyond() -> Vec<Rule> {
    vec![
        Rule::on("", &["pods"], &["create", "patch", "delete"]).because("Tasks run as pods."),
        Rule::on("", &["pods/log"], &["get"])
            .because("What a pod wrote is kept beside its workflow before the operator deletes the pod."),
        Rule::on("", &["configmaps"], &["create"]),
    ]
}
