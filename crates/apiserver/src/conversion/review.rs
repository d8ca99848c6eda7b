//! The question that a conversion webhook gets, and its answer.

use serde_json::{Map, Value, json};

use crate::{
    admit::metadata::{check_annotations, check_labels},
    engine::meta::Meta,
    types::ConversionWebhook,
};

/// Versions of `ConversionReview` that we speak.
const KNOWN: [&str; 2] = ["v1", "v1beta1"];
const GROUP: &str = "apiextensions.k8s.io";

/// A question, with what is needed to check the answer.
pub(super) struct Question {
    uid: String,
    version: String,
    /// The version that is asked for.
    to: String,
    /// What messages call the objects: version and kind.
    about: String,
    pub(super) body: Value,
}

impl Question {
    /// Asks for objects in another version. There is at least one.
    pub(super) fn new(webhook: &ConversionWebhook, objects: &[Value], to: &str) -> Result<Self, String> {
        let version = webhook
            .review_versions
            .iter()
            .find(|version| KNOWN.contains(&version.as_str()))
            .ok_or("no supported conversion review versions")?
            .clone();
        let uid = uuid::Uuid::new_v4().to_string();
        // A webhook has no use for a version that its answer cannot change.
        let objects: Vec<Value> = objects
            .iter()
            .map(|object| {
                let mut object = object.clone();
                object.meta_set("resourceVersion", None);
                object
            })
            .collect();
        let about = objects.first().map(kind_text).unwrap_or_default();
        let body = json!({
            "kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
        });
        Ok(Self { uid, version, to: to.to_owned(), about, body })
    }

    /// The objects that a webhook answered with, each with what of its metadata only the server says.
    pub(super) fn converted(
        &self,
        originals: Vec<Value>,
        answer: Result<Value, String>,
    ) -> Result<Vec<Value>, String> {
        let about = &self.about;
        let mut converted = answer
            .and_then(|answer| self.objects(answer))
            .map_err(|why| format!("conversion webhook for {about} failed: {why}"))?;
        if converted.len() != originals.len() {
            return Err(format!(
                "conversion webhook for {about} returned {} objects, expected {}",
                converted.len(),
                originals.len()
            ));
        }
        for (index, (object, original)) in converted.iter_mut().zip(originals).enumerate() {
            self.check(object, &original).map_err(|problem| match problem {
                Problem::Identity(why) => {
                    format!("conversion webhook for {about} returned invalid object at index {index}: {why}")
                }
                Problem::Object(why) => {
                    format!("conversion webhook for {about} returned invalid object: {why}")
                }
                Problem::Metadata(why) => {
                    format!("conversion webhook for {about} returned invalid metadata: {why}")
                }
            })?;
            restore(object, original)
                .map_err(|why| format!("conversion webhook for {about} returned invalid metadata: {why}"))?;
        }
        Ok(converted)
    }

    /// What a review answers.
    fn objects(&self, mut answer: Value) -> Result<Vec<Value>, String> {
        let found = answer["apiVersion"].as_str().and_then(|text| text.strip_prefix("apiextensions.k8s.io/"));
        if let Some(found) = found
            && answer["kind"] == "ConversionReview"
            && KNOWN.contains(&found)
            && found != self.version
        {
            return Err(format!(
                "converting ({found}.ConversionReview) to ({}.ConversionReview): unknown conversion",
                self.version
            ));
        }
        if self.version == "v1" {
            let found = kind_text(&answer);
            if found != "apiextensions.k8s.io/v1, Kind=ConversionReview" {
                return Err(format!(
                    "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {found}"
                ));
            }
        }
        let response = &mut answer["response"];
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let uid = response["uid"].as_str().unwrap_or_default();
        if self.version == "v1" && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let text = |field: &str| response["result"][field].as_str().unwrap_or_default();
        if text("status") != "Success" {
            return Err(match text("message") {
                "" => format!("response.result.status was '{}', not 'Success'", text("status")),
                message => message.to_owned(),
            });
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether an object is the one that was asked about, in the version that was asked for.
    fn check(&self, object: &Value, original: &Value) -> Result<(), Problem> {
        let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
        if !object.is_object() || text(object, "kind").is_empty() {
            return Err(Problem::Identity(format!("Object 'Kind' is missing in '{object}'")));
        }
        let version = text(object, "apiVersion");
        if version != self.to {
            let why = format!("invalid groupVersion (expected {}, received {version})", self.to);
            return Err(Problem::Identity(why));
        }
        let (expected, found) = (text(original, "kind"), text(object, "kind"));
        if expected != found {
            let why = format!("invalid kind (expected {expected}, received {found})");
            return Err(Problem::Identity(why));
        }
        for (what, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
            let (expected, found) = (original.meta_text(field), object.meta_text(field));
            if expected != found {
                return Err(Problem::Object(format!("must have the same {what}: {expected} != {found}")));
            }
        }
        match object.get("metadata") {
            None => Err(Problem::Metadata("missing metadata in converted object".to_owned())),
            Some(metadata) if !metadata.is_object() => Err(Problem::Metadata(format!(
                "invalid metadata of type {} in converted object",
                type_of(metadata)
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// What is wrong with an object.
enum Problem {
    /// It is of the wrong version or kind.
    Identity(String),
    /// It is another one.
    Object(String),
    /// Its metadata is none.
    Metadata(String),
}

/// Takes all metadata but labels and annotations from the original: only those are the webhook's to change.
fn restore(object: &mut Value, mut original: Value) -> Result<(), String> {
    let mut answered = object["metadata"].take();
    let mut metadata = match original["metadata"].take() {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    for field in ["labels", "annotations"] {
        let texts = match answered[field].take() {
            Value::Object(texts) => texts,
            Value::Null => {
                metadata.remove(field);
                continue;
            }
            other => {
                let found = type_of(&other);
                return Err(format!("invalid metadata.{field} of type {found} in converted object"));
            }
        };
        for (key, value) in &texts {
            if !value.is_string() {
                let found = type_of(value);
                return Err(format!(
                    "metadata.{field}[{key}] must be a string, but is {found} in converted object"
                ));
            }
        }
        let texts = Value::Object(texts);
        if metadata.get(field) != Some(&texts) {
            let mut errors = Vec::new();
            match field {
                "labels" => check_labels(Some(&texts), "metadata.labels", &mut errors),
                _ => check_annotations(Some(&texts), "metadata.annotation", &mut errors),
            }
            if let Some(error) = errors.first() {
                return Err(error.to_string());
            }
        }
        metadata.insert(field.to_owned(), texts);
    }
    object["metadata"] = Value::Object(metadata);
    Ok(())
}

/// `group/version, Kind=kind`, as messages write it.
fn kind_text(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let version = match text("apiVersion") {
        core if !core.contains('/') => format!("/{core}"),
        other => other.to_owned(),
    };
    format!("{version}, Kind={}", text("kind"))
}

/// What Kubernetes, which is written in Go, calls the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(versions: &[&str]) -> ConversionWebhook {
        ConversionWebhook {
            client_config: Value::Null,
            review_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        }
    }

    fn original() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"}},
        })
    }

    fn answered(change: impl FnOnce(&mut Value)) -> Result<Vec<Value>, String> {
        let question = Question::new(&webhook(&["v9", "v1"]), &[original()], "example.com/v2")?;
        let mut object = original();
        object["apiVersion"] = "example.com/v2".into();
        let mut answer = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": question.uid, "result": {"status": "Success"}, "convertedObjects": [object]},
        });
        change(&mut answer);
        question.converted(vec![original()], Ok(answer))
    }

    #[test]
    fn only_labels_annotations_and_what_is_not_metadata_are_the_webhooks_to_change() {
        let converted = answered(|answer| {
            let object = &mut answer["response"]["convertedObjects"][0];
            object["metadata"]["labels"] = json!({"l": "2"});
            object["metadata"]["annotations"] = json!({"a": "b"});
            object["metadata"]["finalizers"] = json!(["x"]);
            object["metadata"]["resourceVersion"] = "9".into();
            object["spec"] = json!({"new": true});
        });
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"l": "2"}, "annotations": {"a": "b"}});
        let expected = json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": metadata, "spec": {"new": true}});
        assert_eq!(converted, Ok(vec![expected]));
    }

    #[test]
    fn answers_that_are_none_are_told_in_the_words_of_kubernetes() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 9] = [
            (|answer| answer["response"]["uid"] = "x".into(), " failed: expected response.uid="),
            (|answer| answer["response"] = Value::Null, " failed: no response provided"),
            (
                |answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no idea"}),
                " failed: no idea",
            ),
            (
                |answer| answer["response"]["result"] = json!({}),
                " failed: response.result.status was '', not 'Success'",
            ),
            (|answer| answer["response"]["convertedObjects"] = json!([]), " returned 0 objects, expected 1"),
            (
                |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v3".into(),
                " returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
            (
                |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
                " returned invalid object: must have the same name: a != b",
            ),
            (
                |answer| answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"l": 1}),
                " returned invalid metadata: metadata.labels[l] must be a string, but is int64 in converted object",
            ),
            (
                |answer| answer["apiVersion"] = "apiextensions.k8s.io/v1beta1".into(),
                " failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
            ),
        ];
        for (change, expected) in cases {
            let found = answered(change).expect_err("a refusal");
            let start = format!("conversion webhook for example.com/v1, Kind=Thing{expected}");
            assert!(found.starts_with(&start), "{found}");
        }
        assert!(Question::new(&webhook(&["v9"]), &[original()], "example.com/v2").is_err());
    }
}
