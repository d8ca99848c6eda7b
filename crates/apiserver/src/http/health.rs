//! Whether the server is well.

use http::Response;

use super::{Body, Query, respond};
use crate::{engine::Engine, store::Health};

/// The checks, in the order in which they are listed.
const CHECKS: [&str; 3] = ["ping", "log", "store"];

/// Answers `/healthz`, `/livez` and `/readyz`.
pub(super) fn answer(engine: &Engine, endpoint: &str, check: Option<&str>, query: &Query) -> Response<Body> {
    let closing = engine.closing.is_cancelled() && endpoint == "readyz";
    // A restart brings no database back, so that only readiness speaks of it.
    let stored = endpoint != "readyz" || engine.store.health() == Health::Well;
    let mut checks: Vec<(&str, bool)> =
        CHECKS.iter().map(|name| (*name, *name != "store" || stored)).collect();
    if endpoint == "readyz" {
        checks.push(("shutdown", !closing));
    }
    if let Some(name) = check {
        return match checks.iter().find(|(known, _)| *known == name) {
            Some((_, true)) => text(200, "ok".to_owned()),
            Some((_, false)) => text(500, format!("{name} check failed\n")),
            None => text(404, "404 page not found\n".to_owned()),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    checks.retain(|(name, _)| !excluded.contains(name));
    let well = checks.iter().all(|(_, well)| *well);
    if well && query.given("verbose").is_none() {
        return text(200, "ok".to_owned());
    }
    let mut lines = String::new();
    for (name, well) in &checks {
        lines.push_str(&if *well {
            format!("[+]{name} ok\n")
        } else {
            format!("[-]{name} failed: reason withheld\n")
        });
    }
    lines.push_str(&format!("{endpoint} check {}\n", if well { "passed" } else { "failed" }));
    text(if well { 200 } else { 500 }, lines)
}

fn text(code: u16, body: String) -> Response<Body> {
    respond::with_type(code, "text/plain; charset=utf-8", body)
}

/// Answers `/metrics`: how many objects of each sort, and how far the store is.
pub(super) fn metrics(engine: &Engine) -> Response<Body> {
    let mut lines = String::from(
        "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind.\n# TYPE apiserver_storage_objects gauge\n",
    );
    for storage in engine.store.storages() {
        let (group, resource) = storage.rsplit_once('/').unwrap_or(("", &storage));
        let count = engine.store.list(&storage, None).len();
        lines.push_str(&format!(
            "apiserver_storage_objects{{group=\"{group}\",resource=\"{resource}\"}} {count}\n"
        ));
    }
    lines.push_str("# HELP steersman_store_revision Number of the newest write.\n# TYPE steersman_store_revision counter\n");
    lines.push_str(&format!("steersman_store_revision {}\n", engine.store.revision()));
    respond::with_type(200, "text/plain; version=0.0.4; charset=utf-8", lines)
}
