//! `spec.probeResponse`: requests that the resolver answers itself.

use http::{Method, StatusCode};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steersman_resolver::{Pattern, Probe};

/// A kind of request, and the answer to it. All that is given must be so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResponse {
    /// How the path looks. Any, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Headers that the request has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<NamedMatch>,
    /// Parameters that its query has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub query_params: Vec<NamedMatch>,
    /// Its method. Any, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<ProbeMethod>,
    /// The answer.
    pub response: ProbeAnswer,
}

/// How a path looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathMatch {
    /// How it is compared.
    #[serde(rename = "type", default)]
    pub kind: PathMatchType,
    /// With what.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PathMatchType {
    /// It is the same.
    Exact,
    /// It is the same or below it.
    #[default]
    PathPrefix,
    /// It has a match of a regular expression.
    RegularExpression,
}

/// How a header or a parameter looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedMatch {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// How its value is compared.
    #[serde(rename = "type", default)]
    pub kind: MatchType,
    /// With what.
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchType {
    /// It is the same.
    #[default]
    Exact,
    /// It has a match of a regular expression.
    RegularExpression,
}

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)] // their names say it
pub enum ProbeMethod {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// Its status.
    #[schemars(schema_with = "statuses")]
    pub status: u16,
    /// Its body.
    pub body: String,
}

fn statuses(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "integer", "format": "int32",
        "enum": [200, 204, 400, 401, 403, 404, 500, 502, 503, 504]})
}

/// The probes of a resolver, in their order; what is no regular expression is left out and named.
pub(crate) fn compile(responses: &[ProbeResponse]) -> (Vec<Probe>, Vec<String>) {
    let mut problems = Vec::new();
    let mut probes = Vec::new();
    for (index, response) in responses.iter().enumerate() {
        match probe(response) {
            Ok(probe) => probes.push(probe),
            Err(why) => problems.push(format!("spec.probeResponse[{index}]: {why}")),
        }
    }
    (probes, problems)
}

fn probe(response: &ProbeResponse) -> Result<Probe, String> {
    let named = |matches: &[NamedMatch]| -> Result<Vec<(String, Pattern)>, String> {
        let pattern = |one: &NamedMatch| match one.kind {
            MatchType::Exact => Ok(Pattern::Exact(one.value.clone())),
            MatchType::RegularExpression => expression(&one.value),
        };
        matches.iter().map(|one| Ok((one.name.clone(), pattern(one)?))).collect()
    };
    let path = response.path.as_ref().map(|path| match path.kind {
        PathMatchType::Exact => Ok(Pattern::Exact(path.value.clone())),
        PathMatchType::PathPrefix => Ok(Pattern::Prefix(path.value.clone())),
        PathMatchType::RegularExpression => expression(&path.value),
    });
    Ok(Probe {
        method: response.method.map(method),
        path: path.transpose()?,
        headers: named(&response.headers)?,
        query: named(&response.query_params)?,
        status: StatusCode::from_u16(response.response.status).map_err(|error| error.to_string())?,
        body: response.response.body.clone(),
    })
}

fn expression(text: &str) -> Result<Pattern, String> {
    Regex::new(text).map(Pattern::Expression).map_err(|_| format!("{text:?} is not a regular expression"))
}

fn method(method: ProbeMethod) -> Method {
    match method {
        ProbeMethod::Get => Method::GET,
        ProbeMethod::Head => Method::HEAD,
        ProbeMethod::Post => Method::POST,
        ProbeMethod::Put => Method::PUT,
        ProbeMethod::Delete => Method::DELETE,
        ProbeMethod::Connect => Method::CONNECT,
        ProbeMethod::Options => Method::OPTIONS,
        ProbeMethod::Trace => Method::TRACE,
        ProbeMethod::Patch => Method::PATCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_expression_is_named_and_the_others_stay() {
        let responses: Vec<ProbeResponse> = serde_json::from_value(json!([
            {"path": {"type": "RegularExpression", "value": "("}, "response": {"status": 200, "body": ""}},
            {"path": {"value": "/health"}, "method": "GET", "response": {"status": 200, "body": "ok"}},
            {"headers": [{"name": "User-Agent", "type": "RegularExpression", "value": "kube-probe/.*"}],
             "response": {"status": 503, "body": "{}"}}]))
        .expect("probes");
        let (probes, problems) = compile(&responses);
        assert_eq!(problems, ["spec.probeResponse[0]: \"(\" is not a regular expression"]);
        assert_eq!(probes.len(), 2);
        assert!(matches!(&probes[0].path, Some(Pattern::Prefix(path)) if path == "/health"));
        assert_eq!(
            (probes[0].method.clone(), probes[1].status),
            (Some(Method::GET), StatusCode::SERVICE_UNAVAILABLE)
        );
    }
}
