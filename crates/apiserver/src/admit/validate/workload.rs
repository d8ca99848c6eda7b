//! What runs pods.

use serde_json::Value;

use super::{
    check::{self, immutable, not_negative, number_or_percent, one_of, text},
    pod,
};
use crate::{engine::meta::Meta, schema::FieldError, selector::object_matches};

/// Selector and template, which must fit.
fn selected_template(kind: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    match spec.get("selector").filter(|selector| selector.is_object()) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            check::selector(selector, "spec.selector", errors);
            if check::selects_all(selector) {
                errors.push(FieldError::invalid(
                    "spec.selector",
                    selector.clone(),
                    format!("empty selector is invalid for {kind}"),
                ));
            } else if !object_matches(selector, &spec["template"]["metadata"]["labels"]) {
                let labels = spec["template"]["metadata"].get("labels").cloned().unwrap_or(Value::Null);
                errors.push(FieldError::invalid(
                    "spec.template.metadata.labels",
                    labels,
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    pod::template(&spec["template"], "spec.template", errors);
}

/// Pods that are replaced when they end must always be restarted.
fn always_restarts(spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if spec["template"]["spec"].get("activeDeadlineSeconds").is_some() {
        errors
            .push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", "must not be specified"));
    }
}

pub(super) fn deployment(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    not_negative(spec, "replicas", "spec", errors);
    selected_template("deployment", spec, errors);
    always_restarts(spec, errors);
    let strategy = &spec["strategy"];
    one_of(strategy, "type", "spec.strategy", &["Recreate", "RollingUpdate"], errors);
    match text(strategy, "type") {
        "Recreate" if strategy.get("rollingUpdate").is_some() => errors.push(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let unavailable = number_or_percent(
                &rolling["maxUnavailable"],
                "spec.strategy.rollingUpdate.maxUnavailable",
                errors,
            );
            let surge =
                number_or_percent(&rolling["maxSurge"], "spec.strategy.rollingUpdate.maxSurge", errors);
            if (unavailable, surge) == (Some(0), Some(0)) {
                let bad = rolling["maxUnavailable"].clone();
                errors.push(FieldError::invalid(
                    "spec.strategy.rollingUpdate.maxUnavailable",
                    bad,
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
        }
        _ => {}
    }
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(spec, field, "spec", errors);
    }
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
        && deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0)
    {
        errors.push(FieldError::invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
    if let Some(live) = live {
        immutable(spec, &live["spec"], "selector", "spec", errors);
    }
}

pub(super) fn replica_set(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    not_negative(spec, "replicas", "spec", errors);
    not_negative(spec, "minReadySeconds", "spec", errors);
    selected_template("replicaset", spec, errors);
    always_restarts(spec, errors);
    if let Some(live) = live {
        immutable(spec, &live["spec"], "selector", "spec", errors);
    }
}

pub(super) fn replication_controller(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    not_negative(spec, "replicas", "spec", errors);
    if spec["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    pod::template(&spec["template"], "spec.template", errors);
    always_restarts(spec, errors);
}

/// The spec with a volume for each claim: its pods will have them, so that they may be mounted.
fn with_claims(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let names: Vec<Value> = claims.map(|claim| claim["metadata"]["name"].clone()).collect();
    let Some(pod) = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut) else { return spec };
    let volumes = pod.entry("volumes").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(volumes) = volumes.as_array_mut() {
        for name in names {
            if !volumes.iter().any(|volume| volume["name"] == name) {
                volumes.push(serde_json::json!({"name": name, "emptyDir": {}}));
            }
        }
    }
    spec
}

pub(super) fn stateful_set(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    not_negative(spec, "replicas", "spec", errors);
    not_negative(spec, "minReadySeconds", "spec", errors);
    one_of(spec, "podManagementPolicy", "spec", &["OrderedReady", "Parallel"], errors);
    one_of(&spec["updateStrategy"], "type", "spec.updateStrategy", &["OnDelete", "RollingUpdate"], errors);
    selected_template("statefulset", &with_claims(spec), errors);
    always_restarts(spec, errors);
    if let Some(live) = live {
        const MAY_CHANGE: [&str; 7] = [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ];
        let fixed = |spec: &Value| -> Vec<(String, Value)> {
            let fields = spec.as_object().into_iter().flatten();
            fields
                .filter(|(key, _)| !MAY_CHANGE.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        if fixed(spec) != fixed(&live["spec"]) {
            errors.push(FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
    }
}

pub(super) fn daemon_set(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    not_negative(spec, "minReadySeconds", "spec", errors);
    selected_template("daemonset", spec, errors);
    always_restarts(spec, errors);
    one_of(&spec["updateStrategy"], "type", "spec.updateStrategy", &["OnDelete", "RollingUpdate"], errors);
    if let Some(live) = live {
        immutable(spec, &live["spec"], "selector", "spec", errors);
    }
}

/// A job's spec, also that of a cron job's template.
fn job_spec(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for number in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        not_negative(spec, number, field, errors);
    }
    let mode = text(spec, "completionMode");
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        errors.push(FieldError::not_supported(
            format!("{field}.completionMode"),
            mode,
            &["Indexed", "NonIndexed"],
        ));
    }
    if mode == "Indexed" && spec.get("completions").is_none() {
        errors.push(FieldError::required(format!("{field}.completions"), "when completion mode is Indexed"));
    }
    pod::template(&spec["template"], &format!("{field}.template"), errors);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    let path = format!("{field}.template.spec.restartPolicy");
    match policy {
        "OnFailure" | "Never" => {}
        "Always" => errors.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        other => errors.push(FieldError::not_supported(path, other, &["OnFailure", "Never"])),
    }
}

pub(super) fn job(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    job_spec(spec, "spec", errors);
    if let Some(live) = live {
        let old = &live["spec"];
        immutable(spec, old, "selector", "spec", errors);
        immutable(spec, old, "completionMode", "spec", errors);
        if text(spec, "completionMode") != "Indexed" {
            immutable(spec, old, "completions", "spec", errors);
        }
        if old["suspend"] != true {
            immutable(spec, old, "template", "spec", errors);
        }
    }
}

pub(super) fn cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    if object.name().len() > 52 {
        errors.push(FieldError::invalid(
            "metadata.name",
            object.name(),
            "must be no more than 52 characters",
        ));
    }
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if let Err(why) = check_schedule(schedule) {
        errors.push(FieldError::invalid("spec.schedule", schedule, why));
    }
    let zone = text(spec, "timeZone");
    let zones_known = || jiff::tz::TimeZone::get("Europe/Berlin").is_ok();
    if !zone.is_empty() && jiff::tz::TimeZone::get(zone).is_err() && zones_known() {
        errors.push(FieldError::invalid("spec.timeZone", zone, format!("unknown time zone {zone}")));
    }
    one_of(spec, "concurrencyPolicy", "spec", &["Allow", "Forbid", "Replace"], errors);
    for number in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(spec, number, "spec", errors);
    }
    job_spec(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", errors);
}

/// Whether a text is a schedule: five fields, or one of the words for it.
fn check_schedule(text: &str) -> Result<(), String> {
    let words = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if words.contains(&text) || text.starts_with("@every ") {
        return Ok(());
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
    for (index, (field, (low, high))) in fields.iter().zip(bounds).enumerate() {
        if !field.split(',').all(|part| is_range(part, low, high, index)) {
            return Err(format!(
                "failed to parse {field}: not a number, range or step between {low} and {high}"
            ));
        }
    }
    Ok(())
}

fn is_range(part: &str, low: u32, high: u32, index: usize) -> bool {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    if step.is_some_and(|step| !step.parse::<u32>().is_ok_and(|step| step > 0)) {
        return false;
    }
    if matches!(range, "*" | "?") {
        return true;
    }
    let number = |text: &str| {
        let lower = text.to_ascii_lowercase();
        let named = match index {
            3 => MONTHS.contains(&lower.as_str()),
            4 => DAYS.contains(&lower.as_str()),
            _ => false,
        };
        named || text.parse::<u32>().is_ok_and(|number| (low..=high).contains(&number))
    };
    match range.split_once('-') {
        Some((from, to)) => number(from) && number(to),
        None => number(range),
    }
}

pub(super) fn autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let (low, high) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(0));
    if low < 1 {
        errors.push(FieldError::invalid("spec.minReplicas", low, "must be greater than or equal to 1"));
    }
    if high < 1 {
        errors.push(FieldError::invalid("spec.maxReplicas", high, "must be greater than 0"));
    }
    if high < low {
        errors.push(FieldError::invalid(
            "spec.maxReplicas",
            high,
            "must be greater than or equal to `minReplicas`",
        ));
    }
    for field in ["kind", "name"] {
        if text(&spec["scaleTargetRef"], field).is_empty() {
            errors.push(FieldError::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
}

pub(super) fn disruption_budget(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let both = spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some();
    if both {
        errors.push(FieldError::invalid(
            "spec",
            spec.clone(),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.get(field) {
            number_or_percent(value, &format!("spec.{field}"), errors);
        }
    }
    check::selector(&spec["selector"], "spec.selector", errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stateful_set_claims_may_be_mounted() {
        let set = serde_json::json!({"spec": {"selector": {"matchLabels": {"app": "db"}}, "serviceName": "db",
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                "containers": [{"name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "other", "mountPath": "/other"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        let mut errors = Vec::new();
        stateful_set(&set, None, &mut errors);
        let told = format!("{errors:?}");
        assert!(told.contains("volumeMounts[1].name") && !told.contains("volumeMounts[0]"), "{told}");
    }

    #[test]
    fn schedules_are_five_fields_or_a_word() {
        for good in ["*/5 * * * *", "0 0 1 jan mon", "@daily", "@every 1h", "1,2,3-5 0-23/2 ? * 7"] {
            assert_eq!(check_schedule(good), Ok(()), "{good}");
        }
        for bad in ["not cron", "* * * *", "60 * * * *", "*/0 * * * *", "a * * * *", "* * 0 * *"] {
            assert!(check_schedule(bad).is_err(), "{bad}");
        }
    }
}
