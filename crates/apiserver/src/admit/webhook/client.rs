//! How webhooks are called: HTTPS, with connections kept open between calls.

mod trust;

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::config::{Address, Callee};
use crate::{
    engine::{Engine, view},
    object::Key,
    store::Store,
};

/// Answers may not be larger than this.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;
/// Webhooks whose connections are kept.
const KEPT: usize = 256;

/// The annotation in which a node says where on this machine a Service can be reached.
const PUBLISHED: &str = "steersman.io/address";

/// Clients, by where they lead and whom they trust.
#[derive(Default)]
pub(super) struct Clients {
    kept: Mutex<HashMap<Peer, Client<Connector, Full<Bytes>>>>,
}

/// Where connections lead, and whom they trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Peer {
    place: Place,
    ca_bundle: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Place {
    /// What the address says.
    Address,
    /// A Service, found anew for every connection.
    Service { namespace: String, name: String, port: u16 },
}

/// Why a webhook did not answer, in the words of Kubernetes where it has any.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// It cannot even be called.
    #[error("{0}")]
    Setup(String),
    /// It was called.
    #[error("{0}")]
    Call(String),
}

impl Clients {
    /// Asks a webhook.
    pub(super) async fn ask(
        &self,
        callee: &Callee,
        engine: &Engine,
        question: &Value,
    ) -> Result<Value, CallError> {
        let (url, place) = target(callee).map_err(CallError::Setup)?;
        let peer = Peer { place, ca_bundle: callee.ca_bundle.clone() };
        let client = self.client(peer, engine).map_err(CallError::Setup)?;
        let failed = |why: String| CallError::Call(format!("Post \"{url}\": {why}"));
        let request = Request::post(url.as_str())
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .header(http::header::USER_AGENT, "steersman-admission")
            .body(Full::new(Bytes::from(question.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let asked = async {
            let response = client.request(request).await.map_err(|error| failed(reason(&error)))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_LIMIT)
                .collect()
                .await
                .map_err(|error| failed(error.to_string()))?
                .to_bytes();
            read(status, &body).map_err(CallError::Call)
        };
        match tokio::time::timeout(callee.timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
        }
    }

    fn client(&self, peer: Peer, engine: &Engine) -> Result<Client<Connector, Full<Bytes>>, String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = kept.get(&peer) {
            return Ok(client.clone());
        }
        let config = trust::config(&peer.ca_bundle, engine.options.clock.clone())?;
        let connector = Connector {
            tls: TlsConnector::from(config),
            place: peer.place.clone(),
            store: engine.store.clone(),
        };
        let client = Client::builder(TokioExecutor::new()).build(connector);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(peer, client.clone());
        Ok(client)
    }
}

/// The address of a call, and where its connections lead.
fn target(callee: &Callee) -> Result<(String, Place), String> {
    let timeout = format!("timeout={}s", callee.timeout.as_secs());
    Ok(match &callee.address {
        Address::Url(url) => {
            let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
            let authority = uri.authority().ok_or("Unparsable URL: no host")?;
            (format!("https://{authority}{}?{timeout}", uri.path()), Place::Address)
        }
        Address::Service { namespace, name, path, port } => {
            let slash = if path.starts_with('/') { "" } else { "/" };
            let url = format!("https://{name}.{namespace}.svc:{port}{slash}{path}?{timeout}");
            (url, Place::Service { namespace: namespace.clone(), name: name.clone(), port: *port })
        }
    })
}

/// Reads an answer, or says what it was instead.
fn read(status: u16, body: &[u8]) -> Result<Value, String> {
    let answer: Result<Value, _> = serde_json::from_slice(body);
    if (200..300).contains(&status) {
        return match answer {
            Ok(answer)
                if answer["kind"].as_str().is_none_or(str::is_empty) && !answer["response"].is_object() =>
            {
                Err(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body)))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(format!("couldn't get version/kind; json parse error: {error}")),
        };
    }
    if let Ok(answer) = answer
        && answer["kind"] == "Status"
        && let Some(message) = answer["message"].as_str().filter(|message| !message.is_empty())
    {
        return Err(message.to_owned());
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    Err(match status {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        code if code >= 500 => {
            let said = if text.is_empty() { "unknown" } else { text };
            format!("an error on the server ({said:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    })
}

/// The innermost reason of a failed call.
fn reason(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if cause.to_string().contains("connection closed before message completed") {
        return "EOF".to_owned();
    }
    cause.to_string()
}

/// Opens connections to one webhook.
#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
    place: Place,
    store: Store,
}

type Opening = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Opening;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Opening {
        let connector = self.clone();
        Box::pin(async move { connector.open(&uri).await })
    }
}

impl Connector {
    async fn open(&self, uri: &Uri) -> io::Result<Stream> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let stream = match &self.place {
            Place::Address => dial(host, uri.port_u16().unwrap_or(443)).await?,
            Place::Service { namespace, name, port } => {
                let address = endpoint(&self.store, namespace, name, *port).map_err(io::Error::other)?;
                dial(&address.ip().to_string(), address.port()).await?
            }
        };
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = self.tls.connect(name, stream).await.map_err(trust::explain)?;
        Ok(Stream(TokioIo::new(stream)))
    }
}

async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((host, port)).await.map_err(|error| {
        let text = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                let address = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                format!("dial tcp {address}:{port}: connect: connection refused")
            }
            _ if host.parse::<std::net::IpAddr>().is_err() => {
                format!("dial tcp: lookup {host}: no such host")
            }
            _ => format!("dial tcp {host}:{port}: {error}"),
        };
        io::Error::other(text)
    })
}

/// Where a port of a Service is: what its node published on this machine, else one of its endpoints.
fn endpoint(store: &Store, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, String> {
    let stored = store
        .get(&Key::new("services", namespace, name))
        .ok_or_else(|| format!("service \"{name}\" not found"))?;
    let service = view::tree(&stored);
    let ports = service["spec"]["ports"].as_array();
    let entry = ports
        .into_iter()
        .flatten()
        .find(|entry| entry["port"].as_u64() == Some(port.into()))
        .ok_or_else(|| format!("no service port {port} found for service \"{name}\""))?;
    let port_name = entry["name"].as_str().unwrap_or_default();
    if let Some(text) = service["metadata"]["annotations"][PUBLISHED].as_str()
        && let Some(address) = published(text, port_name, port)
    {
        return Ok(address);
    }
    for stored in store.list("discovery.k8s.io/endpointslices", Some(namespace)).iter() {
        let slice = view::tree(stored);
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let target = slice["ports"].as_array().into_iter().flatten().find_map(|candidate| {
            let named = candidate["name"].as_str().unwrap_or_default() == port_name;
            named.then(|| u16::try_from(candidate["port"].as_u64()?).ok()).flatten()
        });
        let ready = |endpoint: &&Value| endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
        let address = slice["endpoints"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(ready)
            .find_map(|endpoint| endpoint["addresses"][0].as_str()?.parse().ok());
        if let (Some(port), Some(address)) = (target, address) {
            return Ok(SocketAddr::new(address, port));
        }
    }
    Err(format!("no endpoints available for service \"{name}\""))
}

/// Reads `127.0.0.1:20001`, or with several ports `http=127.0.0.1:20001,81=127.0.0.1:20002`.
fn published(text: &str, name: &str, port: u16) -> Option<SocketAddr> {
    let number = port.to_string();
    text.split(',').find_map(|part| match part.split_once('=') {
        None => part.parse().ok(),
        Some((key, address)) if key == name || key == number => address.parse().ok(),
        Some(_) => None,
    })
}

/// An encrypted connection.
struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_addresses_are_found_by_name_and_number() {
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        assert_eq!(published("127.0.0.1:20001", "", 443), at("127.0.0.1:20001"));
        let two = "https=127.0.0.1:20001,81=127.0.0.1:20002";
        assert_eq!(published(two, "https", 443), at("127.0.0.1:20001"));
        assert_eq!(published(two, "", 81), at("127.0.0.1:20002"));
        assert_eq!(published(two, "other", 82), None);
    }

    #[test]
    fn answers_that_are_no_success_are_told_in_the_words_of_kubernetes() {
        assert_eq!(
            read(500, b"boom\n"),
            Err("an error on the server (\"boom\") has prevented the request from succeeding".into())
        );
        assert_eq!(read(404, b"page"), Err("the server could not find the requested resource".into()));
        assert!(
            read(200, b"{").is_err_and(|why| why.starts_with("couldn't get version/kind; json parse error"))
        );
    }
}
