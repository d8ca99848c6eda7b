//! Verbs on objects and their subresources.

use std::sync::Arc;

use http::{Method, Response};
use serde_json::Value;

use super::{
    Body, Decoded, Incoming, Media, decode, decode::content_type, log, negotiate, protobuf, respond, reviews,
    route::Target, watch,
};
use crate::{
    admit,
    engine::{Call, DeleteOptions, Engine, Outcome, Patch, PatchKind, Side},
    server::User,
    status::Failure,
    types::{Origin, Resource, Scope, Subresource},
};

/// Answers a request for objects.
pub(super) async fn answer(
    engine: &Arc<Engine>,
    user: &User,
    incoming: &Incoming,
    target: Target,
) -> Result<Response<Body>, Failure> {
    let resource = {
        let served = engine.served.load();
        served.catalog.find(&target.group, &target.version, &target.plural).cloned()
    };
    let resource = resource.ok_or_else(Failure::unknown_path)?;
    check_scope(&resource, &target)?;
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let name = target.name.as_deref().unwrap_or_default();
    let call = Call::new(user, &resource, namespace, name, &incoming.query, &incoming.headers)?;
    let mut response = match target.subresource.as_deref() {
        None => main(engine, &call, incoming, &target).await,
        Some(subresource) => side(engine, &call, incoming, subresource).await,
    }
    .unwrap_or_else(|failure| respond::failure(&failure));
    respond::warn(&mut response, &call.into_warnings());
    Ok(respond::compress(&incoming.headers, respond::pretty(&incoming.query, response)))
}

/// Objects in namespaces are created and read in them; others are not.
fn check_scope(resource: &Resource, target: &Target) -> Result<(), Failure> {
    let namespaced = target.namespace.is_some();
    match resource.scope {
        Scope::Cluster if namespaced => Err(Failure::unknown_path()),
        Scope::Namespaced if !namespaced && target.name.is_some() => Err(Failure::unknown_path()),
        _ => Ok(()),
    }
}

/// The verbs of a resource itself.
async fn main(
    engine: &Arc<Engine>,
    call: &Call<'_>,
    incoming: &Incoming,
    target: &Target,
) -> Result<Response<Body>, Failure> {
    let one = target.name.is_some();
    let method = &incoming.method;
    let watching = target.watch || (*method == Method::GET && call.query.flag("watch")?);
    let verb = match (method, one) {
        (&Method::GET, _) if watching => "watch",
        (&Method::GET | &Method::HEAD, true) => "get",
        (&Method::GET | &Method::HEAD, false) => "list",
        (&Method::POST, false) => "create",
        (&Method::PUT, true) => "update",
        (&Method::PATCH, true) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return Err(Failure::method_not_allowed()),
    };
    if !call.resource.allows(verb) {
        return Err(Failure::method_not_allowed());
    }
    let format = negotiate::negotiate(&incoming.headers)?;
    let outcome = match verb {
        "watch" => return watch::answer(engine, call, format, &incoming.closing).await,
        "list" => {
            let listed = engine.list(call).await?;
            return respond::list(engine, call.resource, format, call.query, listed);
        }
        "get" => engine.get(call).await?,
        "create" => create(engine, call, incoming).await?,
        "update" => engine.update(call, Side::Main, admit::Body::request(body(call, incoming)?)).await?,
        "patch" => engine.patch(call, Side::Main, &patch(call, incoming)?).await?,
        "delete" | "deletecollection" => {
            let options = delete_options(incoming)?;
            let call = rehearsed(call, &options, incoming)?;
            if one {
                engine.delete(&call, &options).await?
            } else {
                engine.delete_collection(&call, &options).await?
            }
        }
        _ => return Err(Failure::method_not_allowed()),
    };
    respond::outcome(engine, call.resource, format, call.query, outcome)
}

async fn create(engine: &Arc<Engine>, call: &Call<'_>, incoming: &Incoming) -> Result<Outcome, Failure> {
    if call.namespace.is_empty() && call.resource.scope == Scope::Namespaced {
        return Err(Failure::method_not_allowed());
    }
    let decoded = body(call, incoming)?;
    if let Some(review) = reviews::answer(engine, call, &decoded.value)? {
        return Ok(review);
    }
    if &*call.resource.plural == "bindings" {
        let pods = find(engine, "", "v1", "pods")?;
        let name = decoded.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let call = Call::new(call.user, &pods, call.namespace, &name, call.query, &incoming.headers)?;
        return engine.bind(&call, &decoded.value).await;
    }
    engine.create(call, admit::Body::request(decoded)).await
}

/// The verbs of a subresource.
async fn side(
    engine: &Arc<Engine>,
    call: &Call<'_>,
    incoming: &Incoming,
    name: &str,
) -> Result<Response<Body>, Failure> {
    let subresource = call.resource.subresource(name).ok_or_else(Failure::unknown_path)?;
    let verb = match incoming.method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => return Err(Failure::method_not_allowed()),
    };
    if !subresource.verbs().contains(&verb) {
        return Err(Failure::method_not_allowed());
    }
    if name == "log" {
        return log::answer(engine, call, &incoming.closing).await;
    }
    let format = negotiate::negotiate(&incoming.headers)?;
    let outcome = match (subresource, verb) {
        (Subresource::Scale(paths), "get") => engine.get_scale(call, paths).await?,
        (Subresource::Scale(paths), "update") => {
            engine.update_scale(call, paths, body(call, incoming)?).await?
        }
        (Subresource::Scale(paths), _) => engine.patch_scale(call, paths, &patch(call, incoming)?).await?,
        (Subresource::Status, "get") => engine.get(call).await?,
        (Subresource::Status, "update") => {
            engine.update(call, Side::Status, admit::Body::request(body(call, incoming)?)).await?
        }
        (Subresource::Status, _) => engine.patch(call, Side::Status, &patch(call, incoming)?).await?,
        (Subresource::Other { .. }, "get") => match name {
            "ephemeralcontainers" | "resize" | "approval" => engine.get(call).await?,
            _ => return Err(unsupported(call, name)),
        },
        (Subresource::Other { .. }, "update") => {
            engine.update(call, Side::of(name), admit::Body::request(body(call, incoming)?)).await?
        }
        (Subresource::Other { .. }, "patch") => {
            engine.patch(call, Side::of(name), &patch(call, incoming)?).await?
        }
        (Subresource::Other { .. }, _) => match name {
            "binding" => engine.bind(call, &body(call, incoming)?.value).await?,
            "eviction" => engine.evict(call, &body(call, incoming)?.value).await?,
            "token" => reviews::token(engine, call, &body(call, incoming)?.value)?,
            _ => return Err(unsupported(call, name)),
        },
    };
    respond::outcome(engine, call.resource, format, call.query, outcome)
}

/// What is listed in discovery because clients look for it there, but not served yet.
fn unsupported(call: &Call<'_>, subresource: &str) -> Failure {
    Failure::unavailable(format!("{}/{subresource} is not served by this server yet", call.resource.plural))
}

fn find(engine: &Engine, group: &str, version: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
    engine.served.load().catalog.find(group, version, plural).cloned().ok_or_else(Failure::unknown_path)
}

fn body(call: &Call<'_>, incoming: &Incoming) -> Result<Decoded, Failure> {
    let media = Media::of(&incoming.headers)?;
    if media == Media::Protobuf && call.resource.origin != Origin::BuiltIn {
        return Err(Failure::unsupported_media_type(
            "custom resources cannot be read as protobuf: send application/json or application/yaml",
        ));
    }
    if incoming.body.is_empty() {
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
             unexpected end of JSON input (<empty>)",
            call.resource.kind
        )));
    }
    read(media, incoming)
}

fn read(media: Media, incoming: &Incoming) -> Result<Decoded, Failure> {
    match media {
        Media::Protobuf => {
            let value = protobuf::decode(&incoming.body)?;
            Ok(Decoded { value, duplicates: Vec::new() })
        }
        Media::Json | Media::Yaml => decode(media, &incoming.body),
    }
}

fn patch(call: &Call<'_>, incoming: &Incoming) -> Result<Patch, Failure> {
    let kind = PatchKind::of(&content_type(&incoming.headers))?;
    Patch::parse(call, kind, &incoming.body)
}

fn delete_options(incoming: &Incoming) -> Result<DeleteOptions, Failure> {
    if incoming.body.iter().all(u8::is_ascii_whitespace) {
        return DeleteOptions::parse(None, &incoming.query);
    }
    let decoded: Value = read(Media::of(&incoming.headers)?, incoming)?.value;
    DeleteOptions::parse(Some(&decoded), &incoming.query)
}

/// The same call, with the dry run that the options of its body ask for.
fn rehearsed<'a>(call: &Call<'a>, options: &DeleteOptions, incoming: &Incoming) -> Result<Call<'a>, Failure> {
    let mut again =
        Call::new(call.user, call.resource, call.namespace, call.name, call.query, &incoming.headers)?;
    if let Some(dry_run) = options.dry_run {
        again.dry_run = dry_run;
    }
    Ok(again)
}
