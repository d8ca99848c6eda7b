//! A stand-in for Sentry gets an error and a panic.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;
use steersman_elasti::sentry::Sentry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;

/// What arrives: the path, what proves who sends, and the envelope.
type Arrived = (String, String, String);

async fn stand_in() -> (String, mpsc::UnboundedReceiver<Arrived>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (sender, arrived) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let path = request.uri().path().to_owned();
                        let auth =
                            request.headers().get("x-sentry-auth").and_then(|value| value.to_str().ok());
                        let auth = auth.unwrap_or_default().to_owned();
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let _ = sender.send((path, auth, String::from_utf8_lossy(&body).into_owned()));
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
                    }
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (format!("http://abc@{address}/42"), arrived)
}

async fn next(arrived: &mut mpsc::UnboundedReceiver<Arrived>) -> (Arrived, Value) {
    let arrived = tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await;
    let arrived = arrived.expect("in time").expect("a report");
    let event = arrived.2.lines().nth(2).expect("three lines");
    let event = serde_json::from_str(event).expect("JSON");
    (arrived, event)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentry_hears_of_an_error_and_of_a_panic() {
    let (dsn, mut arrived) = stand_in().await;
    let variable = |name: &str| match name {
        "SENTRY_DSN" => Some(dsn.clone()),
        "SENTRY_ENVIRONMENT" => Some("test".to_owned()),
        _ => None,
    };
    let sentry = Sentry::from_env(variable, "elasti-operator").expect("usable").expect("told to");
    let subscriber = tracing_subscriber::registry().with(sentry.layer());
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!("a warning is nobody's business");
        tracing::error!(service = "shop/web", "a scaling failed");
    });
    let ((path, auth, _), event) = next(&mut arrived).await;
    assert_eq!(path, "/api/42/envelope/");
    assert!(auth.contains("sentry_key=abc") && auth.contains("sentry_version=7"), "{auth}");
    assert_eq!(event["message"]["formatted"], "a scaling failed");
    assert_eq!(event["extra"]["service"], "shop/web");
    assert_eq!((&event["level"], &event["environment"]), (&"error".into(), &"test".into()));
    assert_eq!(event["tags"]["program"], "elasti-operator");

    sentry.hear_panics();
    let panicked = std::thread::spawn(|| panic!("nobody expected this")).join();
    assert!(panicked.is_err());
    let (_, event) = next(&mut arrived).await;
    assert_eq!(event["level"], "fatal");
    assert_eq!(event["exception"]["values"][0]["value"], "nobody expected this");
    assert!(event["culprit"].as_str().is_some_and(|place| place.contains("sentry.rs")), "{event}");
    sentry.flush();
}

#[test]
fn nothing_is_told_to_nobody_and_nonsense_is_refused() {
    let sentry =
        |dsn: &'static str| Sentry::from_env(move |name| (name == "SENTRY_DSN").then(|| dsn.to_owned()), "x");
    assert!(sentry("").expect("fine").is_none());
    let error = sentry("sentry.example.com").expect_err("no address").to_string();
    assert_eq!(error, "SENTRY_DSN is not like https://key@sentry.example.com/1");
}
