//! The question that a webhook gets, and its answer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{Attributes, Kind, Rehearsal, config::Sort, rules::Invocation};
use crate::{
    status::{Cause, Details, Failure},
    types::Resource,
};

/// Versions of `AdmissionReview` that we speak.
const KNOWN: [&str; 2] = ["v1", "v1beta1"];

/// A question, with what is needed to check the answer.
pub(super) struct Question {
    pub(super) uid: String,
    version: String,
    pub(super) body: Value,
}

/// What a webhook answered.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// The bytes of a JSON patch; empty for none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    result: Value,
}

impl Question {
    /// The question of one invocation.
    pub(super) fn new(
        attributes: &Attributes<'_>,
        invocation: &Invocation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Self, String> {
        let version = invocation
            .hook
            .review_versions
            .iter()
            .find(|version| KNOWN.contains(&version.as_str()))
            .ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?
            .clone();
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = request(attributes, invocation);
        request["uid"] = uid.as_str().into();
        request["object"] = object.cloned().unwrap_or_default();
        request["oldObject"] = old.cloned().unwrap_or_default();
        let body = json!({
            "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request,
        });
        Ok(Self { uid, version, body })
    }

    /// Says so where an answer is a review of another version than the question.
    pub(super) fn mismatch(&self, answer: &Value) -> Option<String> {
        let found = answer["apiVersion"].as_str()?.strip_prefix("admission.k8s.io/")?;
        let differs = answer["kind"] == "AdmissionReview" && KNOWN.contains(&found) && found != self.version;
        differs.then(|| {
            format!(
                "converting ({found}.AdmissionReview) to ({}.AdmissionReview): unknown conversion",
                self.version
            )
        })
    }

    /// Reads and checks the answer.
    pub(super) fn verdict(&self, sort: Sort, answer: &Value) -> Result<Verdict, String> {
        let response = &answer["response"];
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        let text = |field: &str| response[field].as_str().unwrap_or_default();
        let mut patch = STANDARD
            .decode(text("patch"))
            .map_err(|error| format!("webhook returned a response.patch that is not base64: {error}"))?;
        let mut patch_type = response["patchType"].as_str().map(ToOwned::to_owned);
        if self.version == "v1" {
            if text("uid") != self.uid {
                return Err(format!("expected response.uid={:?}, got {:?}", self.uid, text("uid")));
            }
            let found = kind_text(answer);
            if found != "admission.k8s.io/v1, Kind=AdmissionReview" {
                return Err(format!(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {found}"
                ));
            }
            match (sort, patch.is_empty(), patch_type.as_deref()) {
                (Sort::Mutating, false, None) => {
                    return Err("webhook returned response.patch but not response.patchType".to_owned());
                }
                (Sort::Mutating, true, Some(_)) => {
                    return Err("webhook returned response.patchType but not response.patch".to_owned());
                }
                (Sort::Mutating, false, Some("")) => {
                    return Err("webhook returned invalid response.patchType of \"\"".to_owned());
                }
                (Sort::Validating, false, _) => {
                    return Err("validating webhook may not return response.patch".to_owned());
                }
                (Sort::Validating, true, Some(_)) => {
                    return Err("validating webhook may not return response.patchType".to_owned());
                }
                _ => {}
            }
        } else if sort == Sort::Validating {
            patch.clear();
        } else {
            patch_type = Some("JSONPatch".to_owned());
        }
        let warnings = response["warnings"].as_array().into_iter().flatten();
        Ok(Verdict {
            allowed: response["allowed"].as_bool().unwrap_or(false),
            patch,
            patch_type: patch_type.unwrap_or_default(),
            warnings: warnings.filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            result: response["status"].clone(),
        })
    }
}

/// What a webhook is told of a request, without the objects.
pub(super) fn request(attributes: &Attributes<'_>, invocation: &Invocation) -> Value {
    let asked = invocation.resource.as_deref().unwrap_or(attributes.resource);
    let resource = |resource: &Resource| json!({"group": *resource.group, "version": *resource.version, "resource": *resource.plural});
    let kind = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut request = json!({
        "kind": kind(&invocation.kind),
        "resource": resource(asked),
        "requestKind": kind(&attributes.kind),
        "requestResource": resource(attributes.resource),
        "operation": attributes.verb.name(),
        "userInfo": {"username": attributes.user.name, "groups": attributes.user.groups},
        "dryRun": attributes.rehearsal == Rehearsal::DryRun,
        "options": attributes.options,
    });
    for (field, value) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", &attributes.name),
        ("namespace", attributes.effective_namespace()),
    ] {
        if !value.is_empty() {
            request[field] = value.into();
        }
    }
    request
}

/// `group/version, Kind=kind`, as Go writes it.
fn kind_text(answer: &Value) -> String {
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    let version = match text("apiVersion") {
        "" => "/".to_owned(),
        core if !core.contains('/') => format!("/{core}"),
        other => other.to_owned(),
    };
    format!("{version}, Kind={}", text("kind"))
}

impl Verdict {
    /// The failure that a client sees when a webhook says no.
    pub(super) fn refusal(&self, webhook: &str) -> Failure {
        let result = &self.result;
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let denied = format!("admission webhook \"{webhook}\" denied the request");
        let (message, reason) = (text(result, "message"), text(result, "reason"));
        let message = match (message.as_str(), reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = result["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        let details = result["details"].as_object().map(|details| {
            let text = |field: &str| text_of(details, field);
            let causes = details.get("causes").and_then(Value::as_array).into_iter().flatten();
            Box::new(Details {
                name: text("name"),
                group: text("group"),
                kind: text("kind"),
                uid: text("uid"),
                causes: causes
                    .filter_map(Value::as_object)
                    .map(|cause| Cause {
                        reason: text_of(cause, "reason"),
                        message: text_of(cause, "message"),
                        field: text_of(cause, "field"),
                    })
                    .collect(),
                retry_after_seconds: details
                    .get("retryAfterSeconds")
                    .and_then(Value::as_u64)
                    .and_then(|seconds| u32::try_from(seconds).ok())
                    .unwrap_or(0),
            })
        });
        // A refusal is never told as a success, whatever code came with it.
        Failure {
            code: if (400..=599).contains(&code) { code } else { 400 },
            reason: reason.into(),
            message,
            details,
        }
    }
}

fn text_of(map: &Map<String, Value>, field: &str) -> String {
    map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question { uid: "u".into(), version: "v1".into(), body: Value::Null }
    }

    fn answer(response: &Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn answers_that_are_none_are_refused_with_the_words_of_kubernetes() {
        let patch = STANDARD.encode("[]");
        for (sort, given, expected) in [
            (Sort::Validating, json!({}), "webhook response was absent"),
            (
                Sort::Validating,
                answer(&json!({"uid": "x", "allowed": true})),
                "expected response.uid=\"u\", got \"x\"",
            ),
            (
                Sort::Validating,
                json!({"response": {"uid": "u", "allowed": true}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                Sort::Validating,
                answer(&json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})),
                "validating webhook may not return response.patch",
            ),
            (
                Sort::Mutating,
                answer(&json!({"uid": "u", "allowed": true, "patch": patch})),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                Sort::Mutating,
                answer(&json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
                "webhook returned response.patchType but not response.patch",
            ),
        ] {
            assert_eq!(question().verdict(sort, &given), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_refusal_names_the_webhook_and_is_never_a_success() {
        let refusal = |status: Value| {
            let given = answer(&json!({"uid": "u", "allowed": false, "status": status}));
            let verdict = question().verdict(Sort::Validating, &given).expect("an answer");
            let failure = verdict.refusal("a.b.c");
            (failure.code, failure.reason.into_owned(), failure.message)
        };
        let denied = "admission webhook \"a.b.c\" denied the request";
        assert_eq!(refusal(Value::Null), (400, String::new(), format!("{denied} without explanation")));
        assert_eq!(
            refusal(json!({"code": 200, "reason": "Forbidden"})),
            (400, "Forbidden".into(), format!("{denied}: Forbidden"))
        );
        assert_eq!(
            refusal(json!({"code": 403, "message": "no", "reason": "Forbidden"})),
            (403, "Forbidden".into(), format!("{denied}: no"))
        );
    }
}
