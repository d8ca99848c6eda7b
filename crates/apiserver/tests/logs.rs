//! `pods/log`, from a node that speaks as a kubelet does.

mod support;

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use steersman_apiserver::{KubeletClient, Options, User, auth::Authority};
use support::World;
use tokio::{net::TcpListener, task::JoinHandle};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A kubelet that answers with what it was asked, and only to callers whose certificate its CA signed.
async fn kubelet(authority: &Authority) -> (u16, JoinHandle<()>) {
    let identity = authority
        .issue_serving(&User::new("system:node:n", ["system:nodes"]), &["127.0.0.1".into()])
        .expect("issued");
    let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).expect("PEM");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.ca_pem().as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .expect("a verifier");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .expect("a certificate");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = service_fn(|request: Request<Incoming>| async move {
                let asked = request.uri().to_string();
                let (code, text) = if asked.contains("previous") {
                    (400, "previous terminated container \"c\" in pod \"p\" not found".to_owned())
                } else {
                    (200, format!("asked for {asked}\n"))
                };
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
                Ok::<_, Infallible>(response)
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        }
    });
    (port, serving)
}

fn pod(name: &str, containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
    json!({"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": containers}})
}

#[tokio::test]
async fn logs_come_from_the_node_that_runs_the_pod() {
    let dir = tempfile::tempdir().expect("a folder");
    let authority = Authority::load_or_create(dir.path()).expect("an authority");
    let (port, serving) = kubelet(&authority).await;
    let caller = authority
        .issue_client(&User::new("kube-apiserver-kubelet-client", ["system:masters"]))
        .expect("issued");
    let kubelet = KubeletClient {
        certificate_pem: caller.certificate_pem,
        key_pem: caller.key_pem,
        ca_pem: Some(authority.ca_pem().to_owned()),
    };
    let world = World::with(Options { kubelet: Some(kubelet), ..Options::default() }).await;
    let client = &world.client;
    let node = json!({"metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    client.post("/api/v1/nodes", &node).await.ok(201);
    client.post(PODS, &pod("p", &["c"])).await.ok(201);
    client.post(PODS, &pod("two", &["a", "b"])).await.ok(201);

    let log =
        client.get(&format!("{PODS}/p/log?tailLines=5&follow=true&sinceTime=2026-01-01T00:00:00Z")).await;
    assert_eq!(log.code, 200, "{log:?}");
    assert_eq!(
        String::from_utf8_lossy(&log.body),
        "asked for /containerLogs/default/p/c?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5\n"
    );
    let message = client.get(&format!("{PODS}/p/log?previous=true")).await.failure(400, "BadRequest");
    assert_eq!(message, "previous terminated container \"c\" in pod \"p\" not found");
    let message = client.get(&format!("{PODS}/two/log")).await.failure(400, "BadRequest");
    assert_eq!(message, "a container name must be specified for pod two, choose one of: [a b]");
    assert_eq!(client.get(&format!("{PODS}/two/log?container=b")).await.code, 200);
    client.get(&format!("{PODS}/nope/log")).await.failure(404, "NotFound");

    serving.abort();
    let _ = serving.await;
    let message = client.get(&format!("{PODS}/p/log")).await.failure(500, "InternalError");
    assert!(message.contains("cannot get logs from node n: "), "{message}");
}
