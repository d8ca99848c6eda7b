//! Answers and refusals in the shapes that clients know.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value, json};

/// What a request is answered with.
pub(super) type Answer = Response<Full<Bytes>>;

/// Why a request is refused: a status code and what goes under `detail`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) detail: Value,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: Value::String(detail.into()), allow: None }
    }

    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn missing(detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// The path is right and the method is not one of these.
    pub(super) fn method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed") }
    }

    /// What is wrong with parts of the request, each with its place.
    pub(super) fn fields(problems: &[Problem]) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, detail: json!(problems), allow: None }
    }

    pub(super) fn answer(&self) -> Answer {
        let mut answer = json_answer(self.status, &json!({"detail": self.detail}));
        if let Some(methods) = self.allow {
            answer.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(methods));
        }
        answer
    }
}

/// A part of a request that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Problem {
    pub(super) r#type: &'static str,
    pub(super) loc: Vec<Value>,
    pub(super) msg: String,
    pub(super) input: Value,
}

impl Problem {
    pub(super) fn new(r#type: &'static str, place: &[&str], msg: impl Into<String>, input: Value) -> Self {
        Self { r#type, loc: place.iter().map(|part| json!(part)).collect(), msg: msg.into(), input }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::fields(&[problem])
    }
}

/// What the server behind us said, in words for ours.
impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if (400..500).contains(&status.code) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_REQUEST);
                // Not being allowed there is nothing that the client here can mend.
                match status.code {
                    401 | 403 => Self::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        format!("the API server refuses this service: {}", status.message),
                    ),
                    429 => Self::new(StatusCode::SERVICE_UNAVAILABLE, status.message),
                    _ => Self::new(code, status.message),
                }
            }
            error => {
                tracing::warn!(%error, "the API server cannot be reached");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be reached; try again later")
            }
        }
    }
}

impl From<crate::ids::IdError> for Refusal {
    fn from(error: crate::ids::IdError) -> Self {
        match error {
            crate::ids::IdError::Server(error) => error.into(),
            other => Self::new(StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
        }
    }
}

impl From<crate::history::HistoryError> for Refusal {
    fn from(error: crate::history::HistoryError) -> Self {
        tracing::error!(%error, "the history cannot be read");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the history cannot be read; try again later")
    }
}

pub(super) fn json_answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec());
    let mut answer = Response::new(Full::new(Bytes::from(bytes)));
    *answer.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

pub(super) fn ok(body: &impl Serialize) -> Answer {
    json_answer(StatusCode::OK, body)
}

pub(super) fn empty() -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}
