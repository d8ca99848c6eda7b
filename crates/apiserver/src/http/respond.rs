//! Answers as bytes.

use std::{io::Write as _, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING},
};
use serde_json::{Value, json};

use super::{
    Body, Query,
    negotiate::{Encoding, Format, View},
};
use crate::{
    engine::{
        Answer, Engine, Listed, Outcome, Rendering,
        view::{self, Lens},
    },
    status::Failure,
    table::{self, IncludeObject},
    types::Resource,
};

/// Answers smaller than this are not worth compressing.
const GZIP_FROM: usize = 128 * 1024;
/// Lists larger than this are made while they are sent.
const LARGE: usize = 512 * 1024;

/// A body of a media type.
pub(super) fn with_type(code: u16, media: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A failure as a `Status`.
pub(super) fn failure(failure: &Failure) -> Response<Body> {
    let mut response = with_type(failure.code, "application/json", failure.to_value().to_string());
    let retry = failure.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// A tree in the encoding that was asked for.
pub(super) fn value(code: u16, encoding: Encoding, value: &Value) -> Result<Response<Body>, Failure> {
    match encoding {
        Encoding::Json => Ok(with_type(code, "application/json", value.to_string())),
        Encoding::Yaml => {
            let text = serde_saphyr::to_string(value).map_err(Failure::internal)?;
            Ok(with_type(code, "application/yaml", text))
        }
    }
}

fn bytes(code: u16, encoding: Encoding, json: Bytes) -> Result<Response<Body>, Failure> {
    match encoding {
        Encoding::Json => Ok(with_type(code, "application/json", json)),
        Encoding::Yaml => value(code, encoding, &serde_json::from_slice(&json).map_err(Failure::internal)?),
    }
}

/// What a verb answered.
pub(super) fn outcome(
    engine: &Engine,
    resource: &Resource,
    format: Format,
    query: &Query,
    outcome: Outcome,
) -> Result<Response<Body>, Failure> {
    let Outcome { code, answer } = outcome;
    match (format.view, answer) {
        (_, Answer::Plain(body)) => value(code, format.encoding, &body),
        (View::Whole, Answer::Stored(stored)) => {
            let lens = Lens::new(&engine.served.load(), resource);
            bytes(code, format.encoding, lens.bytes(resource, &stored))
        }
        (View::Whole, Answer::Value(object)) => value(code, format.encoding, &object),
        (View::Metadata(version), answer) => {
            let object = engine.value_of(resource, answer);
            value(code, format.encoding, &view::metadata_only(&object, version))
        }
        (View::Table(version), answer) => {
            let object = engine.value_of(resource, answer);
            let mut table = table::render(resource, &[&object], include(query)?, (engine.options.clock)());
            table["apiVersion"] = version.api_version().into();
            table["metadata"] = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            value(code, format.encoding, &table)
        }
    }
}

/// A list.
pub(super) fn list(
    engine: &Engine,
    resource: &Arc<Resource>,
    format: Format,
    query: &Query,
    listed: Listed,
) -> Result<Response<Body>, Failure> {
    let lens = Lens::new(&engine.served.load(), resource);
    let objects =
        || -> Vec<Value> { listed.objects.iter().map(|stored| lens.value(resource, stored)).collect() };
    match format.view {
        View::Whole => {
            let pieces = Rendering::new(resource, lens, listed);
            if pieces.size() > LARGE && format.encoding == Encoding::Json && !is_pretty(query) {
                return Ok(with_type(200, "application/json", Body::large(pieces)));
            }
            bytes(200, format.encoding, pieces.whole().into())
        }
        View::Metadata(version) => {
            let items: Vec<Value> =
                objects().iter().map(|object| view::metadata_only(object, version)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": version.api_version(),
                "metadata": listed.metadata(), "items": items,
            });
            value(200, format.encoding, &list)
        }
        View::Table(version) => {
            let objects = objects();
            let rows: Vec<&Value> = objects.iter().collect();
            let mut table = table::render(resource, &rows, include(query)?, (engine.options.clock)());
            table["apiVersion"] = version.api_version().into();
            table["metadata"] = listed.metadata();
            value(200, format.encoding, &table)
        }
    }
}

/// What a table holds of its objects.
pub(super) fn include(query: &Query) -> Result<IncludeObject, Failure> {
    match query.get("includeObject") {
        None | Some("Metadata") => Ok(IncludeObject::Metadata),
        Some("None") => Ok(IncludeObject::None),
        Some("Object") => Ok(IncludeObject::Object),
        Some(other) => Err(Failure::bad_request(format!("unrecognized includeObject value: {other:?}"))),
    }
}

/// Adds warnings.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text: String =
            warning.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        let quoted = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_bytes(quoted.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Compresses a large answer for clients that like it.
pub(super) fn compress(request: &HeaderMap, response: Response<Body>) -> Response<Body> {
    let wanted = request
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|text| text.contains("gzip"));
    if !wanted {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let packed = match body.map_large(Packed::new) {
        Ok(large) => large,
        Err(body) => {
            let Some(bytes) = body.whole().filter(|bytes| bytes.len() >= GZIP_FROM) else {
                return Response::from_parts(parts, body);
            };
            let mut packed = Vec::with_capacity(bytes.len() / 8);
            Packed::new(std::iter::once(bytes.clone())).for_each(|piece| packed.extend_from_slice(&piece));
            packed.into()
        }
    };
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, packed)
}

/// Pieces, compressed as they come.
struct Packed<P> {
    pieces: P,
    /// Nothing after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<P: Iterator<Item = Bytes>> Packed<P> {
    fn new(pieces: P) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<P: Iterator<Item = Bytes>> Iterator for Packed<P> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            // Writing to memory does not fail; were it to, the answer would end early and be seen as broken.
            match self.pieces.next() {
                Some(piece) => encoder.write_all(&piece).ok()?,
                None => return self.encoder.take()?.finish().ok().map(Bytes::from),
            }
            if encoder.get_ref().len() >= PACKED {
                return Some(std::mem::take(encoder.get_mut()).into());
            }
        }
    }
}

/// Compressed pieces are at least this large, but for the last.
const PACKED: usize = 32 * 1024;

fn is_pretty(query: &Query) -> bool {
    matches!(query.given("pretty"), Some("" | "1" | "true"))
}

/// Writes JSON for people, when the query asks for it.
pub(super) fn pretty(query: &Query, response: Response<Body>) -> Response<Body> {
    if !is_pretty(query) {
        return response;
    }
    let indented = response.body().whole().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    match indented.and_then(|value| serde_json::to_vec_pretty(&value).ok()) {
        Some(bytes) => {
            let (parts, _) = response.into_parts();
            Response::from_parts(parts, bytes.into())
        }
        None => response,
    }
}
