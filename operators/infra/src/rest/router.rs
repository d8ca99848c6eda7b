//! From a request to the function that answers it.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::answer::{Answer, Refusal, ok};
use super::fields::{Query, decode, integer};
use super::{Face, openapi, resource_types, resources};

/// The largest body that is read: room for a spec and a configuration of 1 MiB each.
const LARGEST: usize = 3 << 20;

/// Answers one request.
pub(super) async fn answer(face: &Face, request: Request<Incoming>) -> Answer {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut answer = match route(face, request).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(),
    };
    if answer.status() == StatusCode::UNAUTHORIZED {
        let scheme = header::HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    tracing::debug!(%method, path, status = answer.status().as_u16(), "answered");
    answer
}

async fn route(face: &Face, request: Request<Incoming>) -> Result<Answer, Refusal> {
    face.guard.check(request.uri(), request.headers())?;
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query());
    let segments: Vec<String> = head.uri.path().trim_matches('/').split('/').map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    // HEAD is GET without a body, which the connection sees to.
    let method = if head.method == Method::HEAD { Method::GET } else { head.method };
    let read = async { read(body).await };
    let id = |text: &str| integer("path", "resource_id", text);
    let type_id = |text: &str| integer("path", "resource_type_id", text);
    match (method.as_str(), segments.as_slice()) {
        ("GET", [""]) => Ok(ok(&json!({"status": "ok", "service": "infrastructure-controller"}))),
        ("GET", ["health"]) => face.health().await,
        ("GET", ["openapi.json"]) => Ok(ok(&openapi::document())),
        ("GET", ["api", "v1", "plugins", "actions"]) => Ok(ok(&face.action_plugins())),
        ("GET", ["api", "v1", "plugins", "inputs"]) => {
            Ok(ok(&json!([{"name": "http", "version": env!("CARGO_PKG_VERSION")}])))
        }

        ("GET", ["api", "v1", "resource-types"]) => resource_types::list(face, &query).await,
        ("POST", ["api", "v1", "resource-types"]) => resource_types::create(face, &read.await?).await,
        ("GET", ["api", "v1", "resource-types", one]) => resource_types::get(face, type_id(one)?).await,
        ("PUT", ["api", "v1", "resource-types", one]) => {
            resource_types::update(face, type_id(one)?, &read.await?).await
        }
        ("DELETE", ["api", "v1", "resource-types", one]) => resource_types::delete(face, type_id(one)?).await,
        ("GET", ["api", "v1", "resource-types", name, version]) => {
            resource_types::named(face, name, version).await
        }

        ("GET", ["api", "v1", "resources"]) => resources::list(face, &query).await,
        ("POST", ["api", "v1", "resources"]) => resources::create(face, &query, &read.await?).await,
        ("GET", ["api", "v1", "resources", one]) => resources::get(face, id(one)?, &query).await,
        ("PUT", ["api", "v1", "resources", one]) => {
            resources::update(face, id(one)?, &query, &read.await?).await
        }
        ("DELETE", ["api", "v1", "resources", one]) => resources::delete(face, id(one)?, &query).await,
        ("GET", ["api", "v1", "resources", "by-name", kind, version, name]) => {
            resources::named(face, kind, version, name, &query).await
        }
        ("POST", ["api", "v1", "resources", one, "reconcile"]) => resources::reconcile(face, id(one)?).await,
        ("GET", ["api", "v1", "resources", one, "history"]) => {
            resources::history(face, id(one)?, &query).await
        }
        ("GET", ["api", "v1", "resources", one, "outputs"]) => resources::outputs(face, id(one)?).await,

        (_, segments) if is_known(segments) => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        }
        _ => Err(Refusal::missing("Not Found")),
    }
}

fn is_known(segments: &[&str]) -> bool {
    matches!(
        segments,
        ["" | "health" | "openapi.json"]
            | ["api", "v1", "plugins", "actions" | "inputs"]
            | ["api", "v1", "resource-types" | "resources"]
            | ["api", "v1", "resource-types" | "resources", _]
            | ["api", "v1", "resource-types", _, _]
            | ["api", "v1", "resources", _, "reconcile" | "history" | "outputs"]
            | ["api", "v1", "resources", "by-name", _, _, _]
    )
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    match Limited::new(body, LARGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {LARGEST} bytes"),
        )),
        Err(_) => Err(Refusal::bad("the body broke off")),
    }
}
