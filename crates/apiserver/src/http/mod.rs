//! Requests and answers.
//!
//! ```text
//!   serve (TLS) ┐
//!               ├─ authenticate ─ route ─ verb ─ engine ─ respond
//!   in process ─┘
//! ```

mod backups;
mod body;
mod decode;
mod documents;
mod health;
mod in_process;
mod log;
mod negotiate;
mod objects;
mod protobuf;
mod query;
mod respond;
mod reviews;
mod route;
mod serve;
mod watch;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

pub use body::Body;
pub use in_process::InProcess;
pub use serve::{ServeError, ServingIdentity};

pub(crate) use decode::{Decoded, Media, decode};
pub(crate) use negotiate::MetaVersion;
pub(crate) use query::Query;

use crate::{engine::Engine, server::User, status::Failure};
use route::Route;

/// Bodies may not be larger than this.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Of bodies that are too large this much is read, so that their senders get to read the answer.
const DRAIN_LIMIT: usize = 16 * 1024 * 1024;

/// Any error that a body may end with.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One request with its body read.
pub(crate) struct Incoming {
    method: Method,
    path: String,
    query: Query,
    headers: HeaderMap,
    body: Bytes,
    /// Ends streams.
    closing: CancellationToken,
}

/// Answers a request of a user. Never fails: what goes wrong is an answer too.
pub(crate) async fn answer<B>(
    engine: &Arc<Engine>,
    user: &User,
    request: Request<B>,
    closing: &CancellationToken,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let result = async {
        let incoming = Incoming {
            query: Query::parse(parts.uri.query())?,
            path: parts.uri.path().to_owned(),
            method: parts.method,
            body: read(&parts.headers, body, backups::body_limit(user, parts.uri.path())).await?,
            headers: parts.headers,
            closing: closing.clone(),
        };
        dispatch(engine, user, incoming).await
    };
    result.await.unwrap_or_else(|failure| respond::failure(&failure))
}

async fn dispatch(engine: &Arc<Engine>, user: &User, incoming: Incoming) -> Result<Response<Body>, Failure> {
    let route = Route::parse(&incoming.path);
    let impersonated = crate::auth::impersonate(user, &incoming.headers)?;
    let user = impersonated.as_ref().unwrap_or(user);
    match route {
        Route::Resource(target) => objects::answer(engine, user, &incoming, target).await,
        Route::Backup | Route::Restore => backups::answer(engine, user, incoming, &route).await,
        _ if incoming.method != Method::GET && incoming.method != Method::HEAD => {
            Err(Failure::method_not_allowed())
        }
        Route::Health { endpoint, check } => {
            Ok(health::answer(engine, &endpoint, check.as_deref(), &incoming.query))
        }
        Route::Metrics => Ok(health::metrics(engine)),
        route => documents::answer(engine, &incoming, &route),
    }
}

/// Reads a body, which may not be too large.
async fn read<B>(headers: &HeaderMap, body: B, limit: usize) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let announced = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let drain = DRAIN_LIMIT.max(limit);
    if announced.is_some_and(|length| length > drain) {
        return Err(Failure::too_large(limit));
    }
    let mut read = 0;
    let mut body = std::pin::pin!(body);
    let mut whole: Option<Bytes> = None;
    let mut more = BytesMut::new();
    while let Some(frame) = body.as_mut().frame().await {
        let frame = frame.map_err(|error| {
            Failure::bad_request(format!("cannot read the body of the request: {}", error.into()))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len();
        if read > limit {
            // Clients that are still sending would not see the answer.
            if read > drain {
                break;
            }
            continue;
        }
        match &whole {
            None => whole = Some(data),
            Some(first) => {
                if more.is_empty() {
                    more.extend_from_slice(first);
                }
                more.extend_from_slice(&data);
            }
        }
    }
    if read > limit {
        return Err(Failure::too_large(limit));
    }
    Ok(if more.is_empty() { whole.unwrap_or_default() } else { more.freeze() })
}
