//! Errors as clients of Kubernetes know them: a `Status` object with a reason, a code and details.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::{schema::FieldError, types::Resource};

/// An answer that is not what was asked for.
///
/// Becomes a `Status` body; [`Failure::code`] is the HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// What programs match on, for example `NotFound`; empty where Kubernetes gives none.
    pub reason: Cow<'static, str>,
    /// What people read.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<Details>>,
}

/// What a [`Failure`] is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group of the object; empty for core.
    pub group: String,
    /// Kind or resource of the object.
    pub kind: String,
    /// Uid of the object.
    pub uid: String,
    /// Single violations.
    pub causes: Vec<Cause>,
    /// When to try again.
    pub retry_after_seconds: u32,
}

/// One violation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cause {
    /// What programs match on, for example `FieldValueInvalid`.
    pub reason: String,
    /// What people read.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

/// Name of a resource as messages write it: `deployments.apps`, `pods`.
fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason: Cow::Borrowed(reason), message: message.into(), details: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.plural.to_string(),
            ..Details::default()
        }));
        self
    }

    fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Something that went wrong elsewhere, for which Kubernetes has no reason.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details.get_or_insert_default().causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// The request makes no sense (400).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Nobody said who they are (401).
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Not allowed to this user or at this time (403).
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let what = qualified(&resource.group, &resource.plural);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// Not allowed, where no resource is concerned (403).
    pub fn forbidden_path(why: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", why).with_details(Details::default())
    }

    /// No such object (404).
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::not_found_as(&resource.group, &resource.plural, name)
    }

    /// No such object of a resource that is named here (404).
    pub fn not_found_as(group: &str, plural: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, plural))).with_details(
            Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: plural.to_owned(),
                ..Details::default()
            },
        )
    }

    /// No such path (404).
    pub fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// The path exists, the verb does not (405).
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(Details::default())
    }

    /// The client accepts nothing that we can write (406).
    pub fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    /// There is one already (409).
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", qualified(&resource.group, &resource.plural)),
        )
        .about(resource, name)
    }

    /// The object is not as the client thinks it is (409).
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let what = qualified(&resource.group, &resource.plural);
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"))
            .about(resource, name)
    }

    /// The object is not the one that a deletion is meant for (409).
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let mut failure = Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                qualified(&resource.group, &resource.kind)
            ),
        )
        .about(resource, name);
        if let Some(details) = &mut failure.details {
            details.kind = resource.kind.to_string();
        }
        failure
    }

    /// Somebody wrote the object in between (409).
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Fields that somebody else owns (409).
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(409, "Conflict", message).with_details(Details { causes, ..Details::default() })
    }

    /// History does not reach back that far (410).
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The body is too large (413).
    pub fn too_large(limit: usize) -> Self {
        Self::too_large_because(format!("Request entity too large: limit is {limit}"))
    }

    /// The body is too large in some other way (413).
    pub fn too_large_because(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// The body is in a form that we do not read (415).
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The object breaks rules (422).
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.reason().to_owned(),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {all}", qualified(group, kind)))
            .with_details(Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                causes,
                ..Details::default()
            })
    }

    /// The server cannot process what was asked, without field details (422).
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).with_details(Details::default())
    }

    /// Come back later (429).
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
            .with_details(Details { retry_after_seconds: 1, ..Details::default() })
    }

    /// Something is wrong with the server (500).
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {why}")).with_cause(
            "",
            why.to_string(),
            "",
        )
    }

    /// Another server that was needed did not answer properly (502 or 503).
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The database cannot be reached (500, with when to try again).
    pub fn server_timeout(resource: &Resource, verb: &str) -> Self {
        let what = qualified(&resource.group, &resource.plural);
        let message = format!(
            "The {verb} operation against {what} could not be completed at this time, please try again."
        );
        let mut failure = Self::new(500, "ServerTimeout", message).about(resource, "");
        if let Some(details) = &mut failure.details {
            details.retry_after_seconds = 2;
        }
        failure
    }

    /// It took too long (504).
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    /// The client asks for a future that has not come (504).
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let mut failure =
            Self::timeout(format!("Timeout: Too large resource version: {asked}, current: {current}"))
                .with_cause("ResourceVersionTooLarge", "Too large resource version", "");
        if let Some(details) = &mut failure.details {
            details.retry_after_seconds = 1;
        }
        failure
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(map) = status.as_object_mut() {
            if !self.reason.is_empty() {
                map.insert("reason".into(), self.reason.as_ref().into());
            }
            if let Some(details) = &self.details {
                map.insert("details".into(), details.to_value());
            }
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                map.insert(key.into(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            map.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            map.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(map)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                map.insert(key.into(), text.as_str().into());
            }
        }
        Value::Object(map)
    }
}

/// The `Status` of a deletion that is done.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let details = Details {
        name: name.into(),
        group: resource.group.to_string(),
        kind: resource.plural.to_string(),
        uid: uid.into(),
        ..Details::default()
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_value()})
}

/// A `Status` that says nothing but that it worked.
pub(crate) fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
