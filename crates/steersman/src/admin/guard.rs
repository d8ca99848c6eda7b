//! Metrics over TLS, for callers whom the API server knows and lets read them.
//!
//! ```text
//!   scraper ──TLS, bearer token──▶ TokenReview: who is it? ──▶ SubjectAccessReview: may it get /metrics?
//!                                     no: 401                     no: 403
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use crate::webhook::Certificates;

/// How the metrics of a manager are kept from strangers: they are served over TLS, and each caller must send
/// a bearer token that the API server knows, of somebody who may `get` the non-resource URL `/metrics`.
///
/// This holds for everything at the address of the metrics, each path by its own name. The address of health
/// is open and tells nothing else. The operator itself must be allowed to create TokenReviews and
/// SubjectAccessReviews, as the ClusterRole `system:auth-delegator` allows.
#[derive(Clone, Debug)]
pub struct SecureMetrics {
    /// Which certificate to show. One made for this process alone.
    pub certificates: Certificates,
    /// Names that a certificate of our own is good for, besides `localhost` and the address. None.
    pub names: Vec<String>,
    /// For how long the API server's permission is remembered. A minute; a refusal at most ten seconds.
    pub memory: Duration,
}

impl Default for SecureMetrics {
    fn default() -> Self {
        Self { certificates: Certificates::Ephemeral, names: Vec::new(), memory: Duration::from_secs(60) }
    }
}

impl SecureMetrics {
    /// Everything that a certificate for this address must be good for.
    pub(crate) fn names(&self, bound: SocketAddr) -> Vec<String> {
        let address =
            if bound.ip().is_unspecified() { "127.0.0.1".to_owned() } else { bound.ip().to_string() };
        let mut names = vec!["localhost".to_owned(), address];
        for name in &self.names {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

/// For how long a refusal is remembered at most: a role that was just granted should count soon.
const REFUSED: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const REMEMBERED: usize = 1024;
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the API server who may see what.
pub(crate) struct Guard {
    client: Client,
    memory: Duration,
    known: Mutex<HashMap<Question, (Verdict, Instant)>>,
    /// Secrets of this process, so that questions can be told apart without keeping tokens.
    hashes: [RandomState; 2],
}

/// A token with what it is shown for, as hashes that nobody outside can foresee.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Question([u64; 2]);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The API server does not know the token.
    Stranger,
    /// This user may not.
    Forbidden(String),
}

/// What is answered instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) words: String,
}

impl Guard {
    pub(crate) fn new(client: Client, memory: Duration) -> Self {
        Self { client, memory, known: Mutex::default(), hashes: [RandomState::new(), RandomState::new()] }
    }

    /// Lets a request pass, or says what to answer.
    pub(crate) async fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let Some(token) = bearer(headers) else {
            return Err(stranger("no bearer token was sent"));
        };
        let verb = method.as_str().to_ascii_lowercase();
        let question = self.question(token, &verb, path);
        let verdict = match self.remembered(question) {
            Some(verdict) => verdict,
            None => {
                let asked = timeout(PATIENCE, self.ask(token, &verb, path)).await;
                let verdict =
                    asked.unwrap_or_else(|_| Err("the API server did not answer in time".to_owned()));
                let verdict = verdict.map_err(|why| {
                    tracing::warn!(why, "whether a caller may read metrics cannot be told");
                    Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, words: why }
                })?;
                self.remember(question, verdict.clone());
                verdict
            }
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Stranger => Err(stranger("the API server does not know this token")),
            Verdict::Forbidden(user) => Err(Refusal {
                status: StatusCode::FORBIDDEN,
                words: format!(
                    "user {user:?} may not {verb} {path}: bind it to a ClusterRole with nonResourceURLs [{path:?}] \
                     and verbs [{verb:?}]"
                ),
            }),
        }
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, String> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = self.review(&TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let (Some(true), Some(user)) = (status.authenticated, status.user) else {
            return Ok(Verdict::Stranger);
        };
        let UserInfo { username, uid, groups, extra } = user;
        let name = username.clone().unwrap_or_default();
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: username,
            uid,
            groups,
            extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = self.review(&SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden(name) })
    }

    async fn review<K>(&self, review: &K) -> Result<K, String>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), review).await;
        answer.map_err(|error| {
            let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
            let remedy = match forbidden {
                true => "; bind the operator's account to the ClusterRole system:auth-delegator",
                false => "",
            };
            format!("{} cannot be created: {}{remedy}", K::plural(&()), crate::Error::from(error))
        })
    }

    fn question(&self, token: &str, verb: &str, path: &str) -> Question {
        Question(self.hashes.each_ref().map(|hash| hash.hash_one((token, verb, path))))
    }

    fn remembered(&self, question: Question) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&question).filter(|(_, until)| Instant::now() < *until).map(|(verdict, _)| verdict.clone())
    }

    fn remember(&self, question: Question, verdict: Verdict) {
        let memory = match verdict {
            Verdict::Allowed => self.memory,
            Verdict::Stranger | Verdict::Forbidden(_) => self.memory.min(REFUSED),
        };
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < REMEMBERED {
            known.insert(question, (verdict, now + memory));
        }
    }
}

/// The token of `Authorization: Bearer …`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn stranger(why: &str) -> Refusal {
    let words = format!("{why}: send `Authorization: Bearer TOKEN` with a token of the cluster");
    Refusal { status: StatusCode::UNAUTHORIZED, words }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{HeaderValue, Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that knows two users, one of whom may read metrics, and counts what it is asked.
    fn server(asked: &Arc<AtomicUsize>) -> Client {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                let bytes = request.into_body().collect().await.expect("a body").to_bytes();
                let mut review: Value = serde_json::from_slice(&bytes).expect("a review");
                review["status"] = match review["spec"]["token"].as_str() {
                    Some("broken") => {
                        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": 403,
                            "status": "Failure", "reason": "Forbidden", "message": "tokenreviews is forbidden"});
                        let body = Body::from(status.to_string().into_bytes());
                        return Ok::<_, Infallible>(
                            Response::builder().status(403).body(body).expect("an answer"),
                        );
                    }
                    Some(name @ ("reader" | "other")) => {
                        json!({"authenticated": true, "user": {"username": name, "groups": ["all"]}})
                    }
                    Some(_) => json!({"user": {}}),
                    None => {
                        assert_eq!(review["spec"]["groups"], json!(["all"]));
                        let path = &review["spec"]["nonResourceAttributes"]["path"];
                        json!({"allowed": review["spec"]["user"] == "reader" && path == "/metrics"})
                    }
                };
                Ok(Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    fn with(authorization: &str) -> HeaderMap {
        let value = HeaderValue::from_str(authorization).expect("a header");
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[tokio::test(start_paused = true)]
    async fn callers_are_asked_for_once_a_minute_and_for_each_path() {
        let asked = Arc::new(AtomicUsize::new(0));
        let guard = Guard::new(server(&asked), Duration::from_secs(60));
        let get = async |path: &str, authorization: &str| {
            let answer = guard.admit(&Method::GET, path, &with(authorization)).await;
            (answer.err().map(|refusal| refusal.status.as_u16()), asked.load(Ordering::SeqCst))
        };
        assert_eq!(get("/metrics", "Bearer reader").await, (None, 2));
        assert_eq!(get("/metrics", "bearer  reader").await, (None, 2), "remembered");
        assert_eq!(get("/debug/queue", "Bearer reader").await, (Some(403), 4));
        assert_eq!(get("/metrics", "Bearer other").await, (Some(403), 6));
        assert_eq!(get("/metrics", "Bearer nobody").await, (Some(401), 7));
        assert_eq!(get("/metrics", "Basic cmVhZGVy").await, (Some(401), 7));
        assert_eq!(get("/metrics", "Bearer ").await, (Some(401), 7));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(get("/metrics", "Bearer other").await, (Some(403), 9), "a refusal is soon forgotten");
        assert_eq!(get("/metrics", "Bearer reader").await, (None, 9));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(get("/metrics", "Bearer reader").await, (None, 11));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_asked_is_refused_with_what_to_do() {
        let guard = Guard::new(server(&Arc::default()), Duration::from_secs(60));
        let refusal =
            guard.admit(&Method::GET, "/metrics", &with("Bearer broken")).await.expect_err("refused");
        assert_eq!(refusal.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(refusal.words.contains("system:auth-delegator"), "{}", refusal.words);
        let refusal =
            guard.admit(&Method::GET, "/metrics", &with("Bearer other")).await.expect_err("refused");
        assert!(refusal.words.contains("\"other\" may not get /metrics: bind it"), "{}", refusal.words);
    }
}
