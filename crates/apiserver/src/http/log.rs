//! `pods/log`: fetched from the node that runs the pod.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse, FusedFuture as _},
    stream,
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{Body, respond};
use crate::{
    auth::kubelet_config,
    engine::{Call, Engine, log_target, view},
    object::Key,
    status::Failure,
};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What of the query is the node's business.
const PASSED_ON: [&str; 8] =
    ["follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"];

/// Answers `GET pods/<name>/log`.
pub(super) async fn answer(
    engine: &Arc<Engine>,
    call: &Call<'_>,
    closing: &CancellationToken,
) -> Result<Response<Body>, Failure> {
    let stored = engine.stored(call.resource, call.object_namespace(), call.name)?;
    let pod = view::tree(&stored);
    let target = log_target(&pod, call.query.get("container"))?;
    if target.node.is_empty() {
        // Not given to a node yet: there is nothing to show.
        return Ok(respond::with_type(200, "text/plain", ""));
    }
    let (host, port) = kubelet_address(engine, &target.node)?;
    let mut path = format!("/containerLogs/{}/{}/{}", call.object_namespace(), call.name, target.container);
    let mut separator = '?';
    for key in PASSED_ON {
        if let Some(value) = call.query.get(key) {
            path.push_str(&format!("{separator}{key}={}", encode(value)));
            separator = '&';
        }
    }
    let unreachable =
        |why: String| Failure::internal(format!("cannot get logs from node {}: {why}", target.node));
    let (response, connection) = tokio::time::timeout(PATIENCE, fetch(engine, &host, port, &path))
        .await
        .map_err(|_| unreachable(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(unreachable)?;
    let (parts, body) = response.into_parts();
    if !parts.status.is_success() {
        let text = tokio::select! {
            biased;
            text = body.collect() => text.map(http_body_util::Collected::to_bytes).unwrap_or_default(),
            () = connection => Bytes::new(),
        };
        let message = String::from_utf8_lossy(&text).trim().to_owned();
        return Err(if parts.status.as_u16() == 400 {
            Failure::bad_request(message)
        } else {
            unreachable(message)
        });
    }
    let closing = closing.clone();
    let chunks =
        stream::unfold((body, connection, closing), |(mut body, mut connection, closing)| async move {
            loop {
                let frame = tokio::select! {
                    biased;
                    () = closing.cancelled() => return None,
                    frame = body.frame() => frame?.ok()?,
                    () = &mut connection, if !connection.is_terminated() => continue,
                };
                if let Ok(data) = frame.into_data() {
                    return Some((data, (body, connection, closing)));
                }
            }
        });
    Ok(respond::with_type(200, "text/plain", Body::stream(chunks)))
}

/// Where a node's kubelet listens.
fn kubelet_address(engine: &Engine, node: &str) -> Result<(String, u16), Failure> {
    let stored = engine
        .store
        .get(&Key::new("nodes", "", node))
        .ok_or_else(|| Failure::not_found_as("", "nodes", node))?;
    let status = &view::tree(&stored)["status"];
    let address = ["InternalIP", "Hostname", "ExternalIP"].iter().find_map(|kind| {
        let addresses = status["addresses"].as_array()?;
        addresses.iter().find(|address| address["type"] == *kind)?["address"].as_str().map(ToOwned::to_owned)
    });
    let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok());
    match (address, port) {
        (Some(address), Some(port)) if port > 0 => Ok((address, port)),
        _ => Err(Failure::internal(format!("node {node} does not say where its kubelet listens"))),
    }
}

/// What moves the bytes of a connection; polled beside its body, so that it ends with it.
type Connection = Fuse<BoxFuture<'static, ()>>;

async fn fetch(
    engine: &Engine,
    host: &str,
    port: u16,
    path: &str,
) -> Result<(Response<hyper::body::Incoming>, Connection), String> {
    let client = engine
        .options
        .kubelet
        .as_ref()
        .ok_or("this server was started without a kubelet client certificate")?;
    let config = kubelet_config(client).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
    let mut connection = async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a kubelet ended");
        }
    }
    .boxed()
    .fuse();
    let request = Request::get(path)
        .header(http::header::HOST, format!("{host}:{port}"))
        .body(Empty::new())
        .map_err(|error| error.to_string())?;
    let sent = sender.send_request(request);
    let response = tokio::select! {
        biased;
        response = sent => response,
        () = &mut connection => return Err("the connection broke before an answer came".to_owned()),
    };
    Ok((response.map_err(|error| error.to_string())?, connection))
}

/// Percent-encodes what is not plain in a query.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn values_are_encoded_for_a_query() {
        assert_eq!(encode("2026-01-01T00:00:00+02:00 x"), "2026-01-01T00%3A00%3A00%2B02%3A00%20x");
    }
}
