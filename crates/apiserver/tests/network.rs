//! The server on a socket: TLS, certificates, tokens, shutdown.

mod support;

use std::{net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use steersman_apiserver::{
    Options, ServeError, Server, User,
    auth::{Authority, Identity},
    store::{Store, StoreOptions},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

struct Network {
    authority: Authority,
    port: u16,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
    _dir: tempfile::TempDir,
}

async fn network() -> Network {
    let dir = tempfile::tempdir().expect("a folder");
    let authority = Authority::load_or_create(dir.path()).expect("an authority");
    let store = Store::sqlite(&dir.path().join("db"), StoreOptions::default()).expect("a store");
    let options = Options { authenticator: Some(Arc::new(authority.authenticator())), ..Options::default() };
    let server = Server::open(store, options).await.expect("opened");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let shutdown = CancellationToken::new();
    let (identity, stop) = (authority.serving_identity(), shutdown.clone());
    let serving = tokio::spawn(async move { server.serve(listener, identity, stop).await });
    Network { authority, port, shutdown, serving, _dir: dir }
}

impl Network {
    async fn connect(&self, identity: Option<&Identity>) -> SendRequest<Empty<Bytes>> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.authority.ca_pem().as_bytes()).expect("PEM"))
            .expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificate =
                    CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![certificate], key).expect("a certificate")
            }
        };
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.expect("connected");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream =
            tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        sender
    }
}

async fn get(sender: &mut SendRequest<Empty<Bytes>>, path: &str, token: Option<&str>) -> (u16, Value) {
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response =
        sender.send_request(request.body(Empty::new()).expect("a request")).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (
        code,
        serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).into_owned())),
    )
}

#[tokio::test]
async fn only_those_who_are_known_get_in() {
    let network = network().await;
    let mut nobody = network.connect(None).await;
    assert_eq!(get(&mut nobody, "/readyz", None).await, (200, json!("ok")));
    assert_eq!(get(&mut nobody, "/version", None).await.0, 200);
    let (code, status) = get(&mut nobody, "/api/v1/namespaces", None).await;
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    assert_eq!(get(&mut nobody, "/api/v1/namespaces", Some("wrong")).await.0, 401);
    let token = network.authority.token("admin").expect("a token").to_owned();
    assert_eq!(get(&mut nobody, "/api/v1/namespaces", Some(&token)).await.0, 200);
    let identity =
        network.authority.issue_client(&User::new("system:node:one", ["system:nodes"])).expect("issued");
    let mut node = network.connect(Some(&identity)).await;
    assert_eq!(get(&mut node, "/api/v1/namespaces", None).await.0, 200);
    network.shutdown.cancel();
    network.serving.await.expect("joined").expect("served");
}

#[tokio::test]
async fn watches_end_cleanly_when_the_server_stops() {
    let network = network().await;
    let token = network.authority.token("admin").expect("a token").to_owned();
    let mut client = network.connect(None).await;
    let request = Request::get("/api/v1/namespaces?watch=true&resourceVersion=0")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::new())
        .expect("a request");
    let response = client.send_request(request).await.expect("an answer");
    assert_eq!(response.status(), 200);
    network.shutdown.cancel();
    let events = response.into_body().collect().await.expect("an end, not an error").to_bytes();
    assert!(String::from_utf8_lossy(&events).lines().count() >= 4, "the namespaces there are");
    network.serving.await.expect("joined").expect("served");
}
