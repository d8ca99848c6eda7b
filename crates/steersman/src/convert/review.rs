//! `ConversionReview`, read and answered.

use serde_json::{Value, json};

use super::Convert;
use crate::error::Error;

/// Answers a review, object by object.
///
/// # Errors
/// When the body is no review. What cannot be converted is told in the answer.
pub(crate) fn answer(
    body: &[u8],
    mut convert: impl FnMut(Value, &str) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let mut review: Value = serde_json::from_slice(body)?;
    if review["kind"] != "ConversionReview" || !review["request"].is_object() {
        return Err(Error::msg("the body is not a ConversionReview with a request"));
    }
    let mut request = review["request"].take();
    let objects = match request["objects"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    };
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let converted: Result<Vec<Value>, Error> =
        objects.into_iter().map(|object| convert(object, to)).collect();
    let mut response = match converted {
        Ok(objects) => json!({"result": {"status": "Success"}, "convertedObjects": objects}),
        Err(error) => json!({"result": {"status": "Failure", "message": error.to_string()}}),
    };
    response["uid"] = request["uid"].clone();
    Ok(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}))
}

/// Answers a review by whichever converter knows the kind.
pub(crate) fn answer_all(converters: &[Box<dyn Convert>], body: &[u8]) -> Result<Value, Error> {
    answer(body, |object, to| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let found = converters.iter().find(|converter| {
            let resource = converter.resource();
            resource.group == group && object["kind"] == *resource.kind
        });
        match found {
            Some(converter) => converter.convert(object, to),
            None => Err(Error::terminal(format!("nothing here converts {version} {}", object["kind"]))),
        }
    })
}
