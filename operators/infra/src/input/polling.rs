//! Polls an HTTP API for events.
//!
//! Where it has got to (`ETag` and cursor) is kept in a ConfigMap and moved only after everything
//! before it has taken effect: what is read again after a crash is recognised. Items that can
//! never take effect are parked in the same ConfigMap with the reason.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steersman::CancellationToken;

use super::event::Mapping;
use super::intake::{Intake, IntakeError};
use super::webhook::hex;
use crate::action::web::Web;
use crate::types::slug;

/// The ConfigMap that says where polling has got to, by input.
pub(crate) const PLACES: &str = "infra-input-places";
/// How many pages are read in one go.
const PAGES: usize = 1000;
/// How many parked items are kept, and how much of each.
const PARKED: usize = 50;
const PARKED_LENGTH: usize = 4096;
/// How long to wait after a failure, at most.
const LONGEST: Duration = Duration::from_secs(300);

/// An API that is polled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Polling {
    /// What is read.
    pub url: String,
    /// Headers of the requests, such as a token.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How often. 60 seconds.
    #[serde(default = "minute")]
    pub interval_seconds: f64,
    /// Where in the answer the list of items is; the answer itself by default.
    #[serde(default)]
    pub items: String,
    /// Where in the answer the cursor of the next page is.
    pub cursor: Option<String>,
    /// The query parameter for the cursor. `cursor`.
    #[serde(default = "cursor")]
    pub cursor_parameter: String,
    /// Where the event is in an item.
    #[serde(default)]
    pub mapping: Mapping,
}

fn minute() -> f64 {
    60.0
}

fn cursor() -> String {
    "cursor".into()
}

/// Where polling has got to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    #[serde(default)]
    parked: Vec<Value>,
}

impl Polling {
    /// Whether this can be used.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if Duration::try_from_secs_f64(self.interval_seconds).ok().is_none_or(|it| it.is_zero()) {
            return Err("interval_seconds must be a number above 0".into());
        }
        self.mapping.check()
    }

    /// Polls until told to stop.
    pub(super) async fn run(
        &self,
        name: &str,
        web: &Web,
        state: &Api<ConfigMap>,
        intake: &Intake,
        stop: &CancellationToken,
    ) {
        let interval = Duration::from_secs_f64(self.interval_seconds);
        let mut failures: u32 = 0;
        loop {
            let wait = match self.round(name, web, state, intake).await {
                Ok(()) => {
                    failures = 0;
                    interval
                }
                Err((why, retry_after)) => {
                    tracing::warn!(input = name, why, "polling failed");
                    failures = failures.saturating_add(1);
                    let grown = interval.saturating_mul(1 << failures.min(10)).min(LONGEST.max(interval));
                    retry_after.unwrap_or(grown)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Reads everything that is new.
    async fn round(
        &self,
        name: &str,
        web: &Web,
        state: &Api<ConfigMap>,
        intake: &Intake,
    ) -> Result<(), (String, Option<Duration>)> {
        let failed = |why: String| (why, None);
        let mut place = self.load(name, state).await.map_err(failed)?;
        for _ in 0..PAGES {
            let before = place.clone();
            let answer = web
                .send(Method::GET, &self.address(&place), self.fields(&place).map_err(failed)?, None)
                .await;
            let answer = answer.map_err(|error| failed(error.to_string()))?;
            if answer.status == StatusCode::NOT_MODIFIED {
                return Ok(());
            }
            if !answer.status.is_success() {
                let now = jiff::Timestamp::now();
                return Err((
                    answer.error(&format!("GET {}", self.url), now).to_string(),
                    answer.retry_after(now),
                ));
            }
            let items = answer.body.pointer(&self.items).and_then(Value::as_array);
            let items = items.ok_or_else(|| failed(format!("{:?} is no list in the answer", self.items)))?;
            for item in items {
                self.take(name, item, intake, &mut place).await.map_err(failed)?;
            }
            let next = self.cursor.as_ref().and_then(|at| answer.body.pointer(at)).filter(|it| !it.is_null());
            let next = next.map(|next| next.as_str().map_or_else(|| next.to_string(), ToOwned::to_owned));
            let moved = next.is_some() && next != place.cursor;
            if moved {
                place.cursor = next;
                place.etag = None;
            } else {
                let tag = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
                place.etag = tag.map(ToOwned::to_owned);
            }
            if place != before {
                self.save(name, state, &place).await.map_err(failed)?;
            }
            // A cursor that moves past an empty page is at the end.
            if !moved || items.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn take(&self, name: &str, item: &Value, intake: &Intake, place: &mut Place) -> Result<(), String> {
        let taken = match self.mapping.read(item) {
            // An item without an id is the same as long as it says the same.
            Ok(event) => {
                let id = event.id.clone().unwrap_or_else(|| hex(&Sha256::digest(item.to_string())));
                intake.take(name, &id, &event).await.map(drop)
            }
            Err(why) => Err(IntakeError::Poison(why)),
        };
        match taken {
            Ok(()) => Ok(()),
            Err(IntakeError::Later(why)) => Err(why),
            Err(IntakeError::Poison(why)) => {
                let mut text = item.to_string();
                if let Some((end, _)) = text.char_indices().nth(PARKED_LENGTH) {
                    text.truncate(end);
                }
                let parked = json!({"reason": why, "item": text});
                if !place.parked.contains(&parked) {
                    tracing::warn!(input = name, why, "an item was parked");
                    place.parked.push(parked);
                    place.parked.drain(..place.parked.len().saturating_sub(PARKED));
                }
                Ok(())
            }
        }
    }

    fn address(&self, place: &Place) -> String {
        let Some(cursor) = &place.cursor else { return self.url.clone() };
        let separator = if self.url.contains('?') { '&' } else { '?' };
        let encoded: String = cursor
            .bytes()
            .map(|byte| match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect();
        format!("{}{separator}{}={encoded}", self.url, self.cursor_parameter)
    }

    fn fields(&self, place: &Place) -> Result<HeaderMap, String> {
        let mut fields = HeaderMap::new();
        for (name, value) in &self.headers {
            let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
            let (Ok(name), Ok(value)) = pair else {
                return Err(format!("the header {name:?} is not one that can be sent"));
            };
            fields.insert(name, value);
        }
        if let Some(tag) = place.etag.as_ref().and_then(|tag| HeaderValue::try_from(tag).ok()) {
            fields.insert(header::IF_NONE_MATCH, tag);
        }
        Ok(fields)
    }

    async fn load(&self, name: &str, state: &Api<ConfigMap>) -> Result<Place, String> {
        let found = state.get_opt(PLACES).await.map_err(|error| error.to_string())?;
        let text = found.and_then(|found| found.data?.remove(&slug(name)));
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    async fn save(&self, name: &str, state: &Api<ConfigMap>, place: &Place) -> Result<(), String> {
        let entry = (slug(name), json!(place).to_string());
        let said = |error: kube::Error| error.to_string();
        // Somebody else's write in between is a conflict, and this place is saved a round later.
        let written = match state.get_opt(PLACES).await.map_err(said)? {
            Some(mut found) => {
                found.data.get_or_insert_default().extend([entry]);
                found.metadata.managed_fields = None;
                state.replace(PLACES, &PostParams::default(), &found).await
            }
            None => {
                let mut map = ConfigMap { data: Some(BTreeMap::from([entry])), ..ConfigMap::default() };
                map.metadata.name = Some(PLACES.to_owned());
                state.create(&PostParams::default(), &map).await
            }
        };
        written.map(drop).map_err(said)
    }
}
