//! Amazon SQS, and what speaks like it.
//!
//! Messages are received with a long poll, deleted after their effect is written, and put into
//! the parking queue with the reason when they can never take effect. A message that may take
//! effect later comes back when its visibility timeout ends.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri};
use jiff::Timestamp;
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steersman::CancellationToken;

use super::event::Mapping;
use super::intake::{Intake, IntakeError};
use super::webhook::hex;
use crate::action::web::Web;

/// How long to wait after a failure, at most.
const LONGEST: Duration = Duration::from_secs(60);

/// A queue that is listened to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sqs {
    /// The queue.
    pub queue_url: String,
    /// Where messages go that can never take effect. Without one they stay in the queue, whose
    /// redrive policy decides about them.
    pub parking_queue_url: Option<String>,
    /// The region. `us-east-1`.
    #[serde(default = "region")]
    pub region: String,
    /// The name of the access key.
    pub access_key_id: String,
    /// The access key.
    pub secret_access_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
    /// How long one request waits for messages. 20 seconds, the most that SQS allows.
    #[serde(default = "longest_poll")]
    pub wait_seconds: u64,
    /// Where the event is in a message.
    #[serde(default)]
    pub mapping: Mapping,
}

fn region() -> String {
    "us-east-1".into()
}

fn longest_poll() -> u64 {
    20
}

impl Sqs {
    /// Whether this can be used.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.wait_seconds > 20 {
            return Err("wait_seconds can be at most 20".into());
        }
        for url in [Some(&self.queue_url), self.parking_queue_url.as_ref()].into_iter().flatten() {
            let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
            if uri.host().is_none() {
                return Err(format!("{url:?} must begin with http:// or https:// and a host"));
            }
        }
        self.mapping.check()
    }

    /// Listens until told to stop.
    pub(super) async fn run(&self, name: &str, web: &Web, intake: &Intake, stop: &CancellationToken) {
        let mut failures: u32 = 0;
        loop {
            let round = tokio::select! {
                () = stop.cancelled() => return,
                round = self.round(name, web, intake) => round,
            };
            let Err(why) = round else {
                failures = 0;
                continue;
            };
            tracing::warn!(input = name, why, "the queue cannot be used");
            failures = failures.saturating_add(1);
            let wait = Duration::from_secs(1).saturating_mul(1 << failures.min(10)).min(LONGEST);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn round(&self, name: &str, web: &Web, intake: &Intake) -> Result<(), String> {
        let request = json!({"QueueUrl": self.queue_url, "MaxNumberOfMessages": 10,
            "WaitTimeSeconds": self.wait_seconds, "MessageSystemAttributeNames": ["All"]});
        let answer = self.call(web, "ReceiveMessage", &request).await?;
        for message in answer.get("Messages").and_then(Value::as_array).into_iter().flatten() {
            self.take(name, web, intake, message).await?;
        }
        Ok(())
    }

    async fn take(&self, name: &str, web: &Web, intake: &Intake, message: &Value) -> Result<(), String> {
        let text = |field: &str| message.get(field).and_then(Value::as_str).unwrap_or_default();
        let body = text("Body");
        // The sender's id tells repetitions by the sender; SQS' own those by SQS.
        let taken = match self.mapping.read_bytes(body.as_bytes()) {
            Ok(event) => {
                let id = event.id.clone().unwrap_or_else(|| text("MessageId").to_owned());
                intake.take(name, &id, &event).await.map(drop)
            }
            Err(why) => Err(IntakeError::Poison(why)),
        };
        match taken {
            Ok(()) => {}
            Err(IntakeError::Later(why)) => {
                tracing::warn!(input = name, why, "a message waits");
                return Ok(());
            }
            Err(IntakeError::Poison(why)) => {
                tracing::warn!(input = name, why, "a message was parked");
                let Some(parking) = &self.parking_queue_url else { return Ok(()) };
                let reason: String = why.chars().take(1000).collect();
                let parked = json!({"QueueUrl": parking, "MessageBody": if body.is_empty() { " " } else { body },
                    "MessageAttributes": {
                        "steersman-reason": {"DataType": "String", "StringValue": reason},
                        "steersman-message-id": {"DataType": "String", "StringValue": text("MessageId")}}});
                self.call(web, "SendMessage", &parked).await?;
            }
        }
        let done = json!({"QueueUrl": self.queue_url, "ReceiptHandle": text("ReceiptHandle")});
        self.call(web, "DeleteMessage", &done).await.map(drop)
    }

    async fn call(&self, web: &Web, action: &str, request: &Value) -> Result<Value, String> {
        let uri: Uri =
            self.queue_url.parse().map_err(|error| format!("{:?} is no URL: {error}", self.queue_url))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(format!("{:?} must begin with http:// or https:// and a host", self.queue_url));
        };
        let headers = self.sign(authority.as_str(), action, &request.to_string(), Timestamp::now())?;
        let url = format!("{scheme}://{authority}/");
        let answer = web.send(Method::POST, &url, headers, Some(request)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status.is_success() {
            true => Ok(answer.body),
            false => Err(answer.error(&format!("SQS, {action}"), Timestamp::now()).to_string()),
        }
    }

    /// The headers of a request, signed as AWS asks (Signature Version 4).
    fn sign(&self, host: &str, action: &str, body: &str, now: Timestamp) -> Result<HeaderMap, String> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let date = &time[..8];
        let target = format!("AmazonSQS.{action}");
        let mut signed = vec![
            ("content-type", "application/x-amz-json-1.0"),
            ("host", host),
            ("x-amz-date", time.as_str()),
        ];
        signed.extend(self.session_token.as_ref().map(|token| ("x-amz-security-token", token.as_str())));
        signed.push(("x-amz-target", target.as_str()));
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hex(&Sha256::digest(body)));
        let scope = format!("{date}/{}/sqs/aws4_request", self.region);
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let mut key = format!("AWS4{}", self.secret_access_key).into_bytes();
        for part in [date, self.region.as_str(), "sqs", "aws4_request", &to_sign] {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.access_key_id,
            hex(&key)
        );
        let mut headers = HeaderMap::new();
        for (name, value) in signed.into_iter().chain([("authorization", authorization.as_str())]) {
            let value = HeaderValue::try_from(value)
                .map_err(|_| format!("{name} has characters that no header has"))?;
            headers.insert(http::HeaderName::try_from(name).map_err(|error| error.to_string())?, value);
        }
        Ok(headers)
    }
}
