//! From a request to the function that answers it.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::answer::{Answer, Refusal, json_answer, ok};
use super::fields::{Query, integer};
use super::{Face, docs, openapi, resource_types, resources};
use crate::input::Input;
use crate::percent::decode;

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
    // A webhook's signature says who calls, whatever else guards the address.
    if let Some(name) = request.uri().path().strip_prefix("/api/v1/webhooks/").map(decode) {
        return webhook(face, &name, request).await;
    }
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
        ("GET", ["docs"]) => Ok(docs::page()),
        ("GET", ["api", "v1", "plugins", "actions"]) => Ok(ok(&face.action_plugins())),
        ("GET", ["api", "v1", "plugins", "inputs"]) => {
            let names = ["http"].into_iter().chain(Input::PLUGINS);
            let known = names.map(|name| json!({"name": name, "version": env!("CARGO_PKG_VERSION")}));
            Ok(ok(&known.collect::<Vec<_>>()))
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

        (_, segments) => Err(match allowed(segments) {
            Some(methods) => Refusal::method(methods),
            None => Refusal::missing("Not Found"),
        }),
    }
}

/// The methods that a path knows, if there is such a path.
fn allowed(segments: &[&str]) -> Option<&'static str> {
    match segments {
        ["" | "health" | "openapi.json" | "docs"]
        | ["api", "v1", "plugins", "actions" | "inputs"]
        | ["api", "v1", "resource-types", _, _]
        | ["api", "v1", "resources", "by-name", _, _, _]
        | ["api", "v1", "resources", _, "history" | "outputs"] => Some("GET, HEAD"),
        ["api", "v1", "resource-types" | "resources"] => Some("GET, HEAD, POST"),
        ["api", "v1", "resource-types" | "resources", _] => Some("GET, HEAD, PUT, DELETE"),
        ["api", "v1", "resources", _, "reconcile"] => Some("POST"),
        _ => None,
    }
}

async fn webhook(face: &Face, name: &str, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let Some(webhook) = face.inputs.webhook(name) else {
        return Err(Refusal::missing("Not Found"));
    };
    if request.method() != Method::POST {
        return Err(Refusal::method("POST"));
    }
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let reply = webhook.receive(name, &head.headers, &body, (face.clock)(), &face.intake).await;
    let code = StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match code.is_success() {
        true => Ok(json_answer(code, &json!({"message": reply.message}))),
        false => Err(Refusal::new(code, reply.message)),
    }
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
