//! `AdmissionReview`, read and written.

use serde_json::{Value, json};

use super::handler::{Admission, Operation};

/// The request of a review.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `apiVersion` of the review, which its answer must have too.
    pub(super) api_version: String,
    pub(super) uid: String,
    pub(super) admission: Admission,
    /// Null for deletions.
    pub(super) object: Value,
    /// Null for creations.
    pub(super) old: Value,
}

/// What to answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Response {
    /// The `Status` of a refusal.
    pub(super) refusal: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The operations of a JSON patch.
    pub(super) patch: Option<Value>,
}

impl Request {
    /// Reads the body of a call.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut review: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
        let api_version = review["apiVersion"].as_str().unwrap_or_default().to_owned();
        if review["kind"] != "AdmissionReview" || !review["request"].is_object() {
            return Err("the body is not an AdmissionReview with a request".to_owned());
        }
        let mut request = review["request"].take();
        let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            other => return Err(format!("nothing is known about the operation {other:?}")),
        };
        let groups = request["userInfo"]["groups"].as_array().into_iter().flatten();
        let admission = Admission {
            operation,
            name: text("name"),
            namespace: text("namespace"),
            user: request["userInfo"]["username"].as_str().unwrap_or_default().to_owned(),
            groups: groups.filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            dry_run: request["dryRun"].as_bool().unwrap_or(false),
        };
        let uid = text("uid");
        let (object, old) = (request["object"].take(), request["oldObject"].take());
        Ok(Self { api_version, uid, admission, object, old })
    }

    /// The review that answers this one.
    pub(super) fn answer(&self, response: Response) -> Value {
        let mut answer = json!({"uid": self.uid, "allowed": response.refusal.is_none()});
        if let Some(status) = response.refusal {
            answer["status"] = status;
        }
        if !response.warnings.is_empty() {
            answer["warnings"] = response.warnings.into();
        }
        if let Some(patch) = response.patch {
            use k8s_openapi::ByteString;
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                serde_json::to_value(ByteString(patch.to_string().into_bytes())).unwrap_or_default();
        }
        json!({"apiVersion": self.api_version, "kind": "AdmissionReview", "response": answer})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_is_read_and_answered_in_its_own_version() {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "UPDATE", "name": "n", "namespace": "s", "dryRun": true,
            "userInfo": {"username": "jane", "groups": ["dev"]}, "object": {"a": 1}, "oldObject": {"a": 0}}});
        let request = Request::parse(body.to_string().as_bytes()).expect("a review");
        assert_eq!((request.admission.operation, request.admission.dry_run), (Operation::Update, true));
        assert_eq!((request.object["a"].as_i64(), request.old["a"].as_i64()), (Some(1), Some(0)));
        let answer = request.answer(Response { patch: Some(json!([])), ..Response::default() });
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(answer["response"]["patch"], "W10=");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    }

    #[test]
    fn what_is_no_review_is_refused() {
        for body in ["", "{}", "{\"kind\": \"AdmissionReview\"}", "[1]"] {
            assert!(Request::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
