//! Keeps a deposed leader from writing.
//!
//! While leading, every write carries the epoch of the lease in the header `Steersman-Fence`;
//! our API server refuses one that is not the current. On other servers the header means
//! nothing, but no write begins after the time until which the lease surely counts.

use std::sync::{Arc, PoisonError, RwLock};

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as _;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::service_fn;

use crate::metrics::Metrics;

const HEADER: &str = "steersman-fence";

/// A write was not sent because this process does not lead, or no longer for sure.
#[derive(Debug, thiserror::Error)]
#[error("not leading: the write was not sent")]
pub struct Fenced;

/// What a client may write at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Fence(Arc<RwLock<Gate>>);

#[derive(Debug)]
enum Gate {
    /// There is no election: everything may pass.
    Absent,
    Closed,
    Open {
        epoch: HeaderValue,
        until: Instant,
    },
}

impl Fence {
    /// For a manager without election.
    pub(crate) fn absent() -> Self {
        Self(Arc::new(RwLock::new(Gate::Absent)))
    }

    /// For a candidate.
    pub(crate) fn closed() -> Self {
        Self(Arc::new(RwLock::new(Gate::Closed)))
    }

    pub(crate) fn open(&self, lease: &str, transitions: i32, until: Instant) {
        let epoch = HeaderValue::from_str(&format!("{lease}/{transitions}"));
        self.set(match epoch {
            Ok(epoch) => Gate::Open { epoch, until },
            Err(_) => Gate::Closed,
        });
    }

    pub(crate) fn extend(&self, later: Instant) {
        let mut gate = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Gate::Open { until, .. } = &mut *gate {
            *until = later;
        }
    }

    pub(crate) fn close(&self) {
        self.set(Gate::Closed);
    }

    fn set(&self, gate: Gate) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = gate;
    }

    /// Lets a request pass, marked with the epoch, or not.
    fn admit(&self, request: &mut Request<Body>) -> Result<(), Fenced> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if reads {
            return Ok(());
        }
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Gate::Absent => Ok(()),
            Gate::Open { epoch, until } if Instant::now() < *until => {
                request.headers_mut().insert(HEADER, epoch.clone());
                Ok(())
            }
            Gate::Open { .. } | Gate::Closed => Err(Fenced),
        }
    }

    /// A client whose writes pass through the fence.
    pub(crate) fn guard(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (fence, client) = (self.clone(), client.clone());
        let service = service_fn(move |mut request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                fence.admit(&mut request)?;
                Ok::<_, tower::BoxError>(client.send(request).await?)
            }
        });
        Client::new(service, namespace)
    }
}

/// A client that counts its requests.
pub(crate) fn counted(client: Client, metrics: &Metrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    let metrics = metrics.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            let method = request.method().clone();
            let host = request.uri().host().unwrap_or_default().to_owned();
            let (sent, began) = (request.body().size_hint().exact(), Instant::now());
            let answer = client.send(request).await;
            let length = |response: &Response<Body>| {
                let length = response.headers().get(CONTENT_LENGTH)?.to_str().ok()?;
                length.parse().ok()
            };
            let status = answer.as_ref().map(Response::status);
            metrics.requested(&crate::metrics::Request {
                method: method.as_str(),
                host: &host,
                code: status.as_ref().map_or("<error>", |status| status.as_str()),
                took: began.elapsed(),
                sent,
                received: answer.as_ref().ok().and_then(length),
            });
            answer
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(method: Method) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        request
    }

    #[tokio::test(start_paused = true)]
    async fn writes_pass_only_while_the_lease_surely_counts() {
        let fence = Fence::closed();
        assert!(fence.admit(&mut request(Method::GET)).is_ok());
        assert!(fence.admit(&mut request(Method::PATCH)).is_err());
        fence.open("system/webapp", 7, Instant::now() + Duration::from_secs(10));
        let mut write = request(Method::PATCH);
        assert!(fence.admit(&mut write).is_ok());
        assert_eq!(write.headers()[HEADER], "system/webapp/7");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(fence.admit(&mut request(Method::DELETE)).is_err());
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(fence.admit(&mut request(Method::DELETE)).is_ok());
        fence.close();
        assert!(fence.admit(&mut request(Method::POST)).is_err());
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(fence.admit(&mut request(Method::POST)).is_err());
    }

    #[test]
    fn without_an_election_everything_passes_unmarked() {
        let mut write = request(Method::POST);
        assert!(Fence::absent().admit(&mut write).is_ok());
        assert!(write.headers().get(HEADER).is_none());
    }
}
