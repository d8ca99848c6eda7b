//! Asking for pods.

use crate::target::ServiceKey;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

/// A wake-up call under way.
pub type Waking<'a> = Pin<Box<dyn Future<Output = Result<(), WakeError>> + Send + 'a>>;

/// A way to have a service woken.
pub trait Wake: Send + Sync {
    /// Asks for pods of a service. Ok once that is sure to happen; the pods come later.
    fn wake<'a>(&'a self, service: &'a ServiceKey) -> Waking<'a>;
}

/// Why a wake-up call did not get through; it is made again.
#[derive(Debug)]
pub struct WakeError(pub String);

impl fmt::Display for WakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WakeError {}

/// Wakes through the operator: `POST /informer/incoming-request`.
#[derive(Clone)]
pub struct HttpWake {
    address: String,
    token: Option<String>,
}

impl HttpWake {
    /// An operator at `host:port`, and the token that proves who asks.
    pub fn new(address: impl Into<String>, token: Option<String>) -> Self {
        Self { address: address.into(), token }
    }

    async fn post(&self, service: &ServiceKey) -> Result<(), WakeError> {
        let failed = |error: &dyn fmt::Display| {
            WakeError(format!("the operator at {} cannot be reached: {error}", self.address))
        };
        let stream = TcpStream::connect(&self.address).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let body = serde_json::json!({"count": 1, "svc": service.name, "namespace": service.namespace});
        let mut request = Request::post("/informer/incoming-request")
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Once(Some(body.to_string().into())))
            .map_err(|error| WakeError(format!("the wake-up call cannot be written: {error}")))?;
        let exchange = async {
            tokio::pin!(connection);
            let answer = sender.send_request(request);
            tokio::pin!(answer);
            tokio::select! {
                biased;
                answer = &mut answer => answer,
                ended = &mut connection => match ended {
                    Ok(()) => answer.await,
                    Err(error) => Err(error),
                },
            }
        };
        let answer = exchange.await.map_err(|error| failed(&error))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(WakeError(format!(
            "the operator at {} answered {} to the wake-up call for {service}",
            self.address,
            answer.status()
        )))
    }
}

impl Wake for HttpWake {
    fn wake<'a>(&'a self, service: &'a ServiceKey) -> Waking<'a> {
        const PATIENCE: Duration = Duration::from_secs(5);
        Box::pin(async move {
            match tokio::time::timeout(PATIENCE, self.post(service)).await {
                Ok(result) => result,
                Err(_) => Err(WakeError(format!(
                    "the operator at {} gave no answer within {PATIENCE:?}",
                    self.address
                ))),
            }
        })
    }
}

impl fmt::Debug for HttpWake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpWake").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A body of one piece.
struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
