//! What the operator and the resolver ask of the API server beyond what their controllers declare.

use steersman::Rule;

/// Kinds that can be put to sleep, by group. For others, add their group and kind to the role.
const TARGETS: [(&str, &[&str]); 3] = [
    ("apps", &["deployments", "statefulsets", "replicasets"]),
    ("argoproj.io", &["rollouts"]),
    ("example.com", &["webapps"]),
];

pub(crate) fn operator() -> Vec<Rule> {
    let mut rules = vec![
        Rule::on("discovery.k8s.io", &["endpointslices/restricted"], &["create"])
            .because("Slices that lead to the resolver."),
    ];
    for (index, (group, kinds)) in TARGETS.into_iter().enumerate() {
        let look = Rule::on(group, kinds, &["get", "list", "watch"]);
        rules.push(match index {
            0 => look.because("Targets. For kinds of your own add their group, with the kind and its scale."),
            _ => look,
        });
        rules.push(scaling(group, kinds));
    }
    rules.push(keda());
    rules.push(autoscalers());
    rules.push(
        Rule::on("authentication.k8s.io", &["tokenreviews"], &["create"])
            .because("Whose the token of a wake-up call is."),
    );
    rules
}

pub(crate) fn resolver() -> Vec<Rule> {
    let mut rules = Vec::new();
    for (index, (group, kinds)) in TARGETS.into_iter().enumerate() {
        let scaling = scaling(group, kinds);
        rules.push(match index {
            0 => scaling
                .because("It wakes by itself when no operator answers. Without these it waits for one."),
            _ => scaling,
        });
    }
    rules.push(keda());
    rules.push(autoscalers());
    rules
}

fn scaling(group: &str, kinds: &[&str]) -> Rule {
    let scales: Vec<String> = kinds.iter().map(|kind| format!("{kind}/scale")).collect();
    let scales: Vec<&str> = scales.iter().map(String::as_str).collect();
    Rule::on(group, &scales, &["get", "patch"])
}

fn keda() -> Rule {
    Rule::on("keda.sh", &["scaledobjects"], &["patch"])
        .because("KEDA is paused while a target sleeps; autoscalers are only read.")
}

fn autoscalers() -> Rule {
    Rule::on("autoscaling", &["horizontalpodautoscalers"], &["get"])
}
