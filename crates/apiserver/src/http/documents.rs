//! Discovery, OpenAPI and version: documents about the server itself.

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY},
};
use serde_json::{Value, json};

use super::{
    Body, Incoming,
    negotiate::{self, Encoding},
    respond,
    route::Route,
};
use crate::{
    engine::Engine,
    openapi::{self, Descriptions, Document},
    status::Failure,
    types::{
        Catalog,
        discovery::{self, Root},
    },
};

/// The release of Kubernetes whose API this is.
const RELEASE: (&str, &str, &str) = ("1", "36", "v1.36.4+steersman");

/// Answers with a document.
pub(super) fn answer(engine: &Engine, incoming: &Incoming, route: &Route) -> Result<Response<Body>, Failure> {
    let served = engine.served.load();
    let catalog = &served.catalog;
    let words = || engine.options.descriptions.map(|descriptions| descriptions());
    let found = |document: Option<Value>| document.ok_or_else(Failure::unknown_path);
    let response = match route {
        Route::Root => plain(incoming, &json!({"paths": paths(catalog)}))?,
        Route::Version => plain(incoming, &version())?,
        Route::CoreVersions => match aggregated(catalog, &incoming.headers, Root::Core) {
            Some(response) => response,
            None => plain(incoming, &discovery::core_versions(catalog, &server_address(engine)))?,
        },
        Route::Groups => match aggregated(catalog, &incoming.headers, Root::Groups) {
            Some(response) => response,
            None => plain(incoming, &discovery::group_list(catalog))?,
        },
        Route::Group(name) => plain(incoming, &found(discovery::group(catalog, name))?)?,
        Route::GroupVersion { group, version } => {
            plain(incoming, &found(discovery::resource_list(catalog, group, version))?)?
        }
        Route::OpenApiIndex => plain(incoming, &openapi::index(catalog))?,
        Route::OpenApiV3(path) => {
            let document = openapi::v3(catalog, path, words()).ok_or_else(Failure::unknown_path)?;
            tagged(&incoming.headers, "application/json", &document)
        }
        Route::OpenApiV2 => openapi_v2(catalog, words(), &incoming.headers)?,
        _ => return Err(Failure::unknown_path()),
    };
    Ok(respond::compress(&incoming.headers, respond::pretty(&incoming.query, response)))
}

fn plain(incoming: &Incoming, document: &Value) -> Result<Response<Body>, Failure> {
    let encoding = negotiate::negotiate(&incoming.headers).map_or(Encoding::Json, |format| format.encoding);
    respond::value(200, encoding, document)
}

/// What `/version` says.
pub(super) fn version() -> Value {
    let (major, minor, release) = RELEASE;
    json!({
        "major": major, "minor": minor, "gitVersion": release, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major, "minCompatibilityMinor": "35",
    })
}

fn paths(catalog: &Catalog) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    for group in catalog.groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
    }
    paths.sort();
    paths
}

fn server_address(engine: &Engine) -> String {
    engine.options.advertise.map_or_else(|| "127.0.0.1:6443".to_owned(), |address| address.to_string())
}

/// The aggregated document, when that is what the client likes best.
fn aggregated(catalog: &Catalog, headers: &HeaderMap, root: Root) -> Option<Response<Body>> {
    let clauses = negotiate::clauses(headers);
    let first = clauses.iter().find(|clause| matches!(clause.media, "application/json" | "*/*"))?;
    if first.kind != "APIGroupDiscoveryList" || first.group != "apidiscovery.k8s.io" {
        return None;
    }
    let media = match first.version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "v2beta1" => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        _ => return None,
    };
    let document = discovery::aggregated(catalog, root, first.version);
    let mut response = respond::with_type(200, media, document.to_string());
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Some(tag(headers, response, catalog.hash()))
}

fn openapi_v2(
    catalog: &Catalog,
    words: Option<&Descriptions>,
    headers: &HeaderMap,
) -> Result<Response<Body>, Failure> {
    for clause in negotiate::clauses(headers) {
        match clause.media {
            "application/json" | "*/*" => {
                return Ok(tagged(headers, "application/json", &openapi::v2_json(catalog, words)));
            }
            openapi::V2_PROTOBUF | openapi::V2_PROTOBUF_ASKED => {
                return Ok(tagged(headers, openapi::V2_PROTOBUF, &openapi::v2_protobuf(catalog, words)));
            }
            _ => {}
        }
    }
    Err(Failure::not_acceptable())
}

fn tagged(headers: &HeaderMap, media: &'static str, document: &Document) -> Response<Body> {
    tag(headers, respond::with_type(200, media, document.bytes.clone()), &document.hash)
}

/// Adds an ETag; answers with 304 to those who have it.
fn tag(headers: &HeaderMap, mut response: Response<Body>, hash: &str) -> Response<Body> {
    let quoted = format!("\"{hash}\"");
    let known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.contains(&quoted)));
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
    }
    if let Ok(value) = HeaderValue::from_str(&quoted) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}
