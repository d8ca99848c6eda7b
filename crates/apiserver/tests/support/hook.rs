//! A webhook that answers as a test says.

#![allow(dead_code, reason = "every test uses another part of it")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What a webhook answers to a request of a review.
pub(crate) type Script = Arc<dyn Fn(&str, &Value) -> Reply + Send + Sync>;

/// What a webhook answers.
pub(crate) enum Reply {
    /// The `response` of a review; its uid is filled in.
    Review(Value),
    /// Something else, with this code.
    Raw(u16, String),
    /// Nothing at all.
    Never,
}

/// A webhook on a free port of loopback.
pub(crate) struct Hook {
    address: SocketAddr,
    ca: String,
    /// The paths and requests that came in.
    pub(crate) seen: Arc<Mutex<Vec<(String, Value)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hook {
    pub(crate) async fn start(script: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Hook {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".into(), "hook.default.svc".into()])
            .expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(
                    vec![CertificateDer::from(certificate.der().to_vec())],
                    PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
                )
                .expect("a config");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let script: Script = Arc::new(script);
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, script, seen) = (acceptor.clone(), Arc::clone(&script), Arc::clone(&seen));
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let service = service_fn(move |request: Request<Incoming>| {
                            answer(Arc::clone(&script), Arc::clone(&seen), request)
                        });
                        let _ = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    });
                }
            }
        });
        Hook { address, ca: certificate.pem(), seen, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The client configuration that leads here.
    pub(crate) fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": STANDARD.encode(&self.ca)})
    }

    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.ca)
    }

    /// The paths of the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").iter().map(|(path, _)| path.clone()).collect()
    }

    /// The last request.
    pub(crate) fn last(&self) -> Value {
        self.seen.lock().expect("no panic").last().expect("a request").1.clone()
    }
}

async fn answer(
    script: Script,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let request = review["request"].clone();
    seen.lock().expect("no panic").push((path.clone(), request.clone()));
    let (code, body) = match script(&path, &request) {
        Reply::Never => std::future::pending().await,
        Reply::Raw(code, body) => (code, body),
        Reply::Review(mut response) => {
            if response.get("uid").is_none() {
                response["uid"] = request["uid"].clone();
            }
            let review =
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            (200, review.to_string())
        }
    };
    Ok(Response::builder().status(code).body(Full::new(Bytes::from(body))).expect("a response"))
}

/// The answer to a conversion: every object as `change` makes it, in the version that is asked for.
pub(crate) fn convert(request: &Value, change: impl Fn(&mut Value, &str)) -> Reply {
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects = request["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        if object["apiVersion"] != to {
            change(object, to);
            object["apiVersion"] = to.into();
        }
    }
    conversion(&json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}))
}

/// The answer to a conversion with this `response`.
pub(crate) fn conversion(response: &Value) -> Reply {
    let review =
        json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
    Reply::Raw(200, review.to_string())
}

pub(crate) fn allow() -> Reply {
    Reply::Review(json!({"allowed": true}))
}

pub(crate) fn deny(status: &Value) -> Reply {
    Reply::Review(json!({"allowed": false, "status": status}))
}

pub(crate) fn patch(operations: &Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    Reply::Review(json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
}
