//! What is checked and filled in before a WebApp is stored.

use crate::desired::{self, CONTAINER, NAME};
use crate::types::{WebAppSpec, converter};
use crate::{OPERATOR, WebApp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use steersman::Error;
use steersman::webhook::{Admission, Defaulter, Findings, Validator, Webhooks};

/// What is asked of WebApps beyond what their definition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of images tagged `latest`. A warning.
    pub latest: Latest,
    /// How many replicas a WebApp may have at most. 1000.
    pub max_replicas: i32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { latest: Latest::Warn, max_replicas: 1000 }
    }
}

/// What becomes of images tagged `latest`, of which nobody knows what they are tomorrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest {
    /// They are accepted with a warning.
    Warn,
    /// They are refused.
    Refuse,
}

/// Adds the webhooks of WebApps: defaults, checks, and the conversion between their versions.
#[must_use]
pub fn webhooks(webhooks: Webhooks, policy: Policy) -> Webhooks {
    webhooks.defaulter(Labels).validator(Checks(policy)).converter(converter())
}

/// Gives every WebApp the label by which applications are found.
struct Labels;

impl Defaulter for Labels {
    type Object = WebApp;

    async fn default(&self, webapp: &mut WebApp, _: &Admission) -> Result<(), Error> {
        let name = webapp.name_any();
        // A name that is still to be generated cannot be a label yet.
        if !name.is_empty() {
            webapp.labels_mut().entry(NAME.to_owned()).or_insert(name);
        }
        webapp.labels_mut().entry("app.kubernetes.io/component".to_owned()).or_insert(OPERATOR.to_owned());
        Ok(())
    }
}

/// Judges WebApps.
struct Checks(Policy);

impl Validator for Checks {
    type Object = WebApp;

    async fn create(&self, webapp: &WebApp, _: &Admission) -> Result<Findings, Error> {
        Ok(check(webapp, self.0))
    }

    async fn update(&self, webapp: &WebApp, old: &WebApp, admission: &Admission) -> Result<Findings, Error> {
        // Whoever only removes a finalizer or a label must not be held up by an old spec.
        if webapp.spec == old.spec || webapp.metadata.deletion_timestamp.is_some() {
            return Ok(Findings::new());
        }
        let mut findings = self.create(webapp, admission).await?;
        if is_headless(&webapp.spec) != is_headless(&old.spec) {
            let why =
                "may not be changed: create the WebApp again to give its Service an address or take it away";
            findings.forbidden("spec.service.headless", why);
        }
        Ok(findings)
    }
}

fn is_headless(spec: &WebAppSpec) -> bool {
    spec.service.as_ref().is_some_and(|service| service.headless)
}

/// Everything that is wrong with a WebApp.
fn check(webapp: &WebApp, policy: Policy) -> Findings {
    let mut findings = Findings::new();
    let spec = &webapp.spec;
    if let Some(problem) =
        Some(webapp).filter(|webapp| !webapp.name_any().is_empty()).and_then(desired::problem)
    {
        findings.invalid("metadata.name", webapp.name_any(), problem);
    }
    image(&spec.image, policy.latest, &mut findings);
    if !(0..=policy.max_replicas).contains(&spec.replicas) {
        let why = format!("must be between 0 and {}", policy.max_replicas);
        findings.invalid("spec.replicas", spec.replicas, why);
    }
    if !(1..=65_535).contains(&spec.port) {
        findings.invalid("spec.port", spec.port, "must be between 1 and 65535");
    }
    for (index, variable) in spec.env.iter().enumerate() {
        if variable.name == "PORT" {
            let why = "is set from spec.port; change that instead";
            findings.invalid(format!("spec.env[{index}].name"), "PORT", why);
        }
    }
    let amounts = spec.resources.as_ref();
    let lists = [
        ("requests", amounts.map(|amounts| &amounts.requests)),
        ("limits", amounts.map(|amounts| &amounts.limits)),
    ];
    for (list, amounts) in lists {
        for (name, amount) in amounts.into_iter().flatten() {
            if let IntOrString::String(text) = amount
                && !is_quantity(text)
            {
                let why = "must be an amount such as 500m, 1, 64Mi or 2G";
                findings.invalid(format!("spec.resources.{list}.{name}"), text.as_str(), why);
            }
        }
    }
    match desired::template(webapp) {
        Err(problem) => findings.invalid("spec.podTemplate", "object", problem),
        Ok(template) => {
            let containers = template.spec.map(|pod| pod.containers).unwrap_or_default();
            let main = containers.iter().find(|container| container.name == CONTAINER);
            if main.is_none_or(|main| main.image.as_deref() != Some(spec.image.as_str())) {
                let why = format!("must leave the image of the container {CONTAINER} to spec.image");
                findings.forbidden("spec.podTemplate.spec.containers", why);
            }
        }
    }
    findings
}

/// An image must say which one it is.
fn image(image: &str, latest: Latest, findings: &mut Findings) {
    const FIELD: &str = "spec.image";
    if image.trim().is_empty() {
        findings.required(FIELD, "name the image to run, such as nginx:1.25");
        return;
    }
    if image.contains(char::is_whitespace) {
        findings.invalid(FIELD, image, "must not contain spaces");
        return;
    }
    if image.contains('@') {
        return;
    }
    // A colon before the last slash belongs to the registry's port.
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        None | Some((_, "")) => {
            let why = format!("must say which version: a tag ({image}:1.0) or a digest ({image}@sha256:…)");
            findings.invalid(FIELD, image, why);
        }
        Some((_, "latest")) => match latest {
            Latest::Warn => findings.warn(format!(
                "spec.image: {image:?} may be another image tomorrow; name a version or a digest"
            )),
            Latest::Refuse => {
                let why = "must not be tagged latest, which may be another image tomorrow; name a version or a digest";
                findings.invalid(FIELD, image, why);
            }
        },
        Some(_) => {}
    }
}

/// Whether a text is an amount as Kubernetes writes it: a decimal number with a suffix.
fn is_quantity(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let exponent = || {
        let rest = suffix.strip_prefix(['e', 'E'])?;
        rest.trim_start_matches(['+', '-']).parse::<u8>().ok()
    };
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    number.parse::<f64>().is_ok() && (known.contains(&suffix) || exponent().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problems(name: &str, spec: &Value, policy: Policy) -> Vec<String> {
        let webapp = WebApp::new(name, serde_json::from_value(spec.clone()).expect("a spec"));
        check(&webapp, policy).problems().iter().map(ToString::to_string).collect()
    }

    /// Bad input and the exact words about it; `docs/webapp.md` shows the same table.
    #[test]
    fn every_sort_of_bad_input_is_named_with_its_field() {
        let refuse = Policy { latest: Latest::Refuse, ..Policy::default() };
        let cases = [
            (json!({"image": "nginx:1.25"}), None),
            (json!({"image": "registry:5000/nginx@sha256:00"}), None),
            (
                json!({"image": " "}),
                Some("spec.image: Required value: name the image to run, such as nginx:1.25"),
            ),
            (
                json!({"image": "registry:5000/nginx"}),
                Some(
                    "spec.image: Invalid value: \"registry:5000/nginx\": must say which version: a tag \
                     (registry:5000/nginx:1.0) or a digest (registry:5000/nginx@sha256:…)",
                ),
            ),
            (
                json!({"image": "nginx:latest"}),
                Some(
                    "spec.image: Invalid value: \"nginx:latest\": must not be tagged latest, which may be another \
                     image tomorrow; name a version or a digest",
                ),
            ),
            (
                json!({"image": "nginx:1.25", "replicas": 1001}),
                Some("spec.replicas: Invalid value: 1001: must be between 0 and 1000"),
            ),
            (
                json!({"image": "nginx:1.25", "port": 70000}),
                Some("spec.port: Invalid value: 70000: must be between 1 and 65535"),
            ),
            (
                json!({"image": "nginx:1.25", "env": [{"name": "PORT", "value": "1"}]}),
                Some("spec.env[0].name: Invalid value: \"PORT\": is set from spec.port; change that instead"),
            ),
            (
                json!({"image": "nginx:1.25", "resources": {"limits": {"memory": "64 MB"}}}),
                Some(
                    "spec.resources.limits.memory: Invalid value: \"64 MB\": must be an amount such as 500m, 1, 64Mi or 2G",
                ),
            ),
            (
                json!({"image": "nginx:1.25", "podTemplate": {"spec": {"containers": [{"name": "webapp", "image": "x"}]}}}),
                Some(
                    "spec.podTemplate.spec.containers: Forbidden: must leave the image of the container webapp to spec.image",
                ),
            ),
        ];
        for (spec, expected) in cases {
            let expected: Vec<String> = expected.into_iter().map(ToOwned::to_owned).collect();
            assert_eq!(problems("web", &spec, refuse), expected, "{spec}");
        }
        let named = problems("1st", &json!({"image": "nginx:1.25"}), refuse);
        assert!(
            named[0]
                .starts_with("metadata.name: Invalid value: \"1st\": the Service of a WebApp has its name")
        );
    }

    #[test]
    fn latest_is_only_warned_about_by_default() {
        let webapp =
            WebApp::new("web", serde_json::from_value(json!({"image": "nginx:latest"})).expect("a spec"));
        let findings = check(&webapp, Policy::default());
        assert_eq!(findings.problems(), []);
        let expected =
            "spec.image: \"nginx:latest\" may be another image tomorrow; name a version or a digest";
        assert_eq!(findings.warnings(), [expected]);
    }

    #[test]
    fn amounts_are_told_from_other_texts() {
        for good in ["1", "0.5", "500m", "64Mi", "2G", "1e3", "12E6"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "64 MB", "1.2.3", "Mi", "1MB", "ten"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
