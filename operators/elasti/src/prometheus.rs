//! Asking a Prometheus server.

use crate::dial::{self, Connector, Dial};
use crate::options::ElastiOptions;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const LARGEST: usize = 1 << 20;

/// What a Prometheus trigger asks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) server: String,
    pub(crate) query: String,
    pub(crate) threshold: f64,
    pub(crate) uptime_filter: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Question {
    /// Reads the metadata of a trigger.
    ///
    /// # Errors
    /// What is missing or wrong, by the name of its field.
    pub(crate) fn read(metadata: &Map<String, Value>, options: &ElastiOptions) -> Result<Self, String> {
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let query = text("query").ok_or("metadata.query is missing; write a query that gives one number")?;
        let server = text("serverAddress")
            .or(options.prometheus.as_deref())
            .ok_or("metadata.serverAddress is missing, and the operator was given no address either")?;
        let threshold = match metadata.get("threshold") {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let threshold = threshold
            .filter(|threshold: &f64| threshold.is_finite())
            .ok_or("metadata.threshold is missing or no number; write one such as \"0.5\"")?;
        let mut headers = Vec::new();
        if let Some(Value::Object(given)) = metadata.get("headers") {
            for (name, value) in given {
                let value = value.as_str().ok_or_else(|| format!("metadata.headers.{name} must be text"))?;
                headers.push((name.clone(), value.to_owned()));
            }
        }
        let own = text("serverAddress").is_some();
        if let Some(authorization) = options.prometheus_authorization.as_ref().filter(|_| !own) {
            headers.push(("authorization".into(), authorization.clone()));
        }
        Ok(Self {
            server: server.trim_end_matches('/').to_owned(),
            query: query.to_owned(),
            threshold,
            uptime_filter: text("uptimeFilter").unwrap_or("container=\"prometheus\"").to_owned(),
            headers,
        })
    }
}

/// Asks Prometheus servers.
#[derive(Clone, Debug)]
pub(crate) struct Prometheus {
    client: Client<HttpsConnector<Connector>, Empty<Bytes>>,
}

impl Prometheus {
    pub(crate) fn new(dial: Option<Dial>) -> Result<Self, rustls::Error> {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(dial::https(dial, PATIENCE)?);
        Ok(Self { client })
    }

    /// The one number that a query gives; none if it is not a number at the moment.
    ///
    /// # Errors
    /// When there is no such answer, in words.
    pub(crate) async fn value(&self, question: &Question, query: &str) -> Result<Option<f64>, String> {
        let url = format!("{}/api/v1/query?query={}", question.server, encode(query));
        let answer = self.get(&url, &question.headers).await?;
        let result = &answer["data"]["result"];
        let sample = match (answer["data"]["resultType"].as_str(), result.as_array()) {
            (Some("scalar"), _) => &result[1],
            (_, Some(series)) if series.len() == 1 => &series[0]["value"][1],
            (_, Some(series)) => {
                return Err(format!("the query gives {} series instead of one", series.len()));
            }
            _ => {
                let why = answer["error"].as_str().unwrap_or("its answer is not understood");
                return Err(format!("{} refused the query: {why}", question.server));
            }
        };
        let number = sample.as_str().and_then(|text| text.parse::<f64>().ok());
        Ok(number.filter(|number| !number.is_nan()))
    }

    /// Gets JSON.
    pub(crate) async fn get(&self, url: &str, headers: &[(String, String)]) -> Result<Value, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let place = uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request =
            request.body(Empty::new()).map_err(|error| format!("a header is not allowed: {error}"))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => format!("{place} cannot be reached"),
                false => format!("{place} did not answer: {error}"),
            })?;
            let body = Limited::new(response.into_body(), LARGEST).collect().await;
            let body = body.map_err(|error| format!("the answer of {place} broke off: {error}"))?.to_bytes();
            serde_json::from_slice(&body)
                .map_err(|error| format!("the answer of {place} is no JSON: {error}"))
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_| format!("{place} gave no answer within {PATIENCE:?}"))?
    }
}

/// Writes a text so that it can stand in a query string.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(metadata: Value) -> Result<Question, String> {
        let Value::Object(metadata) = metadata else { return Err("no object".into()) };
        Question::read(&metadata, &ElastiOptions::default())
    }

    #[test]
    fn a_threshold_may_be_text_or_a_number() {
        for threshold in [json!("0.5"), json!(0.5)] {
            let metadata = json!({"query": "q", "serverAddress": "http://p:9090/", "threshold": threshold});
            let question = read(metadata).expect("a question");
            assert_eq!((question.threshold, question.server.as_str()), (0.5, "http://p:9090"));
            assert_eq!(question.uptime_filter, "container=\"prometheus\"");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (metadata, field) in [
            (json!({}), "metadata.query"),
            (json!({"query": "q", "threshold": "1"}), "metadata.serverAddress"),
            (json!({"query": "q", "serverAddress": "http://p"}), "metadata.threshold"),
            (json!({"query": "q", "serverAddress": "http://p", "threshold": "many"}), "metadata.threshold"),
        ] {
            let error = read(metadata).expect_err(field);
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encode("rate(x{a=\"b\"}[1m])"), "rate%28x%7Ba%3D%22b%22%7D%5B1m%5D%29");
    }
}
