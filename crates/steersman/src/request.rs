//! Requests whose answers stay bytes.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;

/// Sends a request and collects its answer; an answer of 400 or above is an error.
pub(crate) async fn send(client: &Client, request: Request<Vec<u8>>) -> kube::Result<Bytes> {
    let body = open(client, request).await?;
    Ok(body.collect().await?.to_bytes())
}

/// Sends a request and hands out the body while it comes in.
pub(crate) async fn open(client: &Client, request: Request<Vec<u8>>) -> kube::Result<Body> {
    let response = client.send(request.map(Body::from)).await?;
    let code = response.status();
    if code.is_success() {
        return Ok(response.into_body());
    }
    let body = response.into_body().collect().await?.to_bytes();
    let status =
        serde_json::from_slice::<Status>(&body).ok().filter(|status| status.code != 0).unwrap_or_else(|| {
            let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            let reason = code.canonical_reason().unwrap_or("unknown");
            Status::failure(&format!("HTTP {code}: {text}"), reason).with_code(code.as_u16())
        });
    Err(kube::Error::Api(status.boxed()))
}

/// The HTTP status code of an API error.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Turns an error of building a request into the client's error.
pub(crate) fn built(
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<Request<Vec<u8>>> {
    request.map_err(kube::Error::BuildRequest)
}
