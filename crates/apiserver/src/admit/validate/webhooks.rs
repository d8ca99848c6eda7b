//! Rules of webhook configurations.

use http::Uri;
use serde_json::Value;

use super::{
    super::names,
    check::{each, selector, text},
};
use crate::schema::FieldError;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What is wrong with a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
pub(super) fn configuration(object: &Value, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (path, hook) in each(object, "webhooks", "") {
        webhook(hook, &path, errors);
        review_versions(hook, &path, errors);
        let name = text(hook, "name");
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        } else if !name.is_empty() {
            seen.push(name);
        }
    }
}

fn webhook(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    full_name(text(hook, "name"), &format!("{path}.name"), errors);
    for (path, rule) in each(hook, "rules", path) {
        check_rule(rule, &path, errors);
    }
    let supported = [
        ("failurePolicy", ["Fail", "Ignore"].as_slice()),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ];
    for (field, allowed) in supported {
        match hook.get(field).and_then(Value::as_str) {
            None if field == "sideEffects" => {
                let detail = format!("must specify one of {}", allowed.join(", "));
                errors.push(FieldError::required(format!("{path}.{field}"), detail));
            }
            Some(found) if !allowed.contains(&found) => {
                errors.push(FieldError::not_supported(format!("{path}.{field}"), found, allowed));
            }
            _ => {}
        }
    }
    if let Some(seconds) = hook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, why));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector(&hook[field], &format!("{path}.{field}"), errors);
    }
    let reinvocation = ["IfNeeded", "Never"];
    if let Some(found) = hook.get("reinvocationPolicy").and_then(Value::as_str)
        && !reinvocation.contains(&found)
    {
        errors.push(FieldError::not_supported(format!("{path}.reinvocationPolicy"), found, &reinvocation));
    }
    client_config(&hook["clientConfig"], &format!("{path}.clientConfig"), errors);
}

/// A domain of at least three parts.
fn full_name(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = names::subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, why));
    }
}

fn check_rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let list = |field: &str| -> Vec<&str> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    for (field, plural) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let (found, path) = (list(field), format!("{path}.{field}"));
        if found.is_empty() {
            errors.push(FieldError::required(path.as_str(), ""));
        }
        if found.len() > 1 && found.contains(&"*") {
            let why = format!("if '*' is present, must not specify other {plural}");
            errors.push(FieldError::invalid(path.as_str(), rule[field].clone(), why));
        }
        for (index, value) in found.iter().enumerate() {
            if field == "operations" && !OPERATIONS.contains(value) {
                errors.push(FieldError::not_supported(format!("{path}[{index}]"), *value, &OPERATIONS));
            }
            if field == "apiVersions" && value.is_empty() {
                errors.push(FieldError::required(format!("{path}[{index}]"), ""));
            }
        }
    }
    resources(&list("resources"), &rule["resources"], &format!("{path}.resources"), errors);
    let scopes = ["*", "Cluster", "Namespaced"];
    if let Some(scope) = rule.get("scope").and_then(Value::as_str)
        && !scopes.contains(&scope)
    {
        errors.push(FieldError::not_supported(format!("{path}.scope"), scope, &scopes));
    }
}

fn resources(found: &[&str], raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if found.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut everywhere): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut plain = false;
    for (index, entry) in found.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if entry.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let Some((resource, subresource)) = entry.split_once('/') else {
            plain = *entry != "*";
            continue;
        };
        if whole.contains(&resource) {
            let why = format!("if '{resource}/*' is present, must not specify {entry}");
            errors.push(FieldError::invalid(at.as_str(), *entry, why));
        }
        if everywhere.contains(&subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {entry}");
            errors.push(FieldError::invalid(at.as_str(), *entry, why));
        }
        if subresource == "*" {
            whole.push(resource);
        }
        if resource == "*" {
            everywhere.push(subresource);
        }
    }
    if found.len() > 1 && found.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, raw.clone(), why));
    }
    if plain && found.contains(&"*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, raw.clone(), why));
    }
}

/// What is wrong with the address of a webhook of any sort.
pub(crate) fn client_config(config: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match (config.get("url").and_then(Value::as_str), config.get("service").filter(|found| found.is_object()))
    {
        (Some(url), None) => check_url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => check_service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn check_url(url: &str, path: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Ok(parsed) = url.parse::<Uri>() else {
        errors.push(FieldError::required(path, format!("url must be a valid URL: parse {url:?}{FORM}")));
        return;
    };
    let scheme = parsed.scheme_str().unwrap_or_default();
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, scheme, why));
    }
    let host = parsed.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if host.is_empty() || scheme.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some((user, _)) = host.rsplit_once('@') {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if let Some((_, fragment)) = url.split_once('#').filter(|(_, fragment)| !fragment.is_empty()) {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if let Some(query) = parsed.query().filter(|query| !query.is_empty()) {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

fn check_service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace"] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port, why));
    }
    let (url_path, path) = (text(service, "path"), format!("{path}.path"));
    match url_path {
        "" | "/" => return,
        "//" => {
            errors.push(FieldError::invalid(path, url_path, "segment[0] may not be empty"));
            return;
        }
        _ => {}
    }
    let Some(rest) = url_path.strip_prefix('/') else {
        errors.push(FieldError::invalid(path, url_path, "must start with a '/'"));
        return;
    };
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            let why = format!("segment[{index}] may not be empty");
            errors.push(FieldError::invalid(path.as_str(), url_path, why));
            continue;
        }
        for problem in names::subdomain(step) {
            let why = format!("segment[{index}]: {problem}");
            errors.push(FieldError::invalid(path.as_str(), url_path, why));
        }
    }
}

fn review_versions(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.admissionReviewVersions");
    let raw = &hook["admissionReviewVersions"];
    let found: Vec<&str> = raw.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if found.is_empty() {
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::required(path, detail));
        return;
    }
    for (index, version) in found.iter().enumerate() {
        if found[..index].contains(version) {
            errors.push(FieldError::invalid(format!("{path}[{index}]"), *version, "duplicate version"));
        }
    }
    if !found.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, raw.clone(), why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut object = json!({"webhooks": [{
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9443/x"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        }]});
        change(&mut object["webhooks"][0]);
        let mut errors = Vec::new();
        configuration(&object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn configurations_that_make_no_sense_are_refused_in_the_words_of_kubernetes() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 10] = [
            (
                |hook| hook["name"] = "a.b".into(),
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
            ),
            (
                |hook| hook["sideEffects"] = "Some".into(),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            ),
            (
                |hook| hook["timeoutSeconds"] = 31.into(),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                |hook| hook["clientConfig"] = json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                |hook| hook["clientConfig"]["url"] = "http://x/y".into(),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                |hook| hook["clientConfig"]["url"] = "https://x/y?z=1".into(),
                "webhooks[0].clientConfig.url: Invalid value: \"z=1\": query parameters are not permitted in the URL",
            ),
            (
                |hook| hook["admissionReviewVersions"] = json!(["v2"]),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
            ),
            (
                |hook| hook["rules"][0]["operations"] = json!(["MAKE"]),
                "webhooks[0].rules[0].operations[0]: Unsupported value: \"MAKE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
            ),
            (
                |hook| hook["rules"][0]["resources"] = json!(["*/*", "pods"]),
                "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
            ),
            (
                |hook| {
                    hook["clientConfig"] = json!({"service": {"name": "s", "namespace": "n", "path": "x"}});
                },
                "webhooks[0].clientConfig.service.path: Invalid value: \"x\": must start with a '/'",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(problems(change), vec![expected.to_owned()]);
        }
    }
}
