//! Backups of everything, for administrators: taken and restored while the server runs.

use std::sync::Arc;

use http::{Method, Response};

use super::{BODY_LIMIT, Body, Incoming, respond, route::Route};
use crate::{
    bootstrap,
    engine::{Engine, view},
    server::User,
    status::Failure,
    store::{Backup, WriteError},
};

/// A backup may be this large.
const RESTORE_LIMIT: usize = 1 << 30;

/// How large the body of a request may be.
pub(super) fn body_limit(user: &User, path: &str) -> usize {
    if Route::parse(path) == Route::Restore && is_admin(user) { RESTORE_LIMIT } else { BODY_LIMIT }
}

fn is_admin(user: &User) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
}

/// Answers `/steersman/v1/backup` and `/steersman/v1/restore`.
pub(super) async fn answer(
    engine: &Arc<Engine>,
    user: &User,
    incoming: Incoming,
    route: &Route,
) -> Result<Response<Body>, Failure> {
    if !is_admin(user) {
        let why = format!("User \"{}\" cannot take or restore backups: system:masters can", user.name);
        return Err(Failure::forbidden_path(why));
    }
    match (route, incoming.method) {
        (Route::Backup, Method::GET) => {
            let backup = engine.store.backup();
            let file = elsewhere(move || {
                let mut file = Vec::new();
                backup.write(&mut file).map(|()| file)
            })
            .await?
            .map_err(Failure::internal)?;
            Ok(respond::with_type(200, "application/gzip", file))
        }
        (Route::Restore, Method::POST) => {
            let body = incoming.body;
            let backup = elsewhere(move || Backup::read(&body[..])).await?;
            let backup = backup.map_err(|error| Failure::bad_request(error.to_string()))?;
            let failed = |error: WriteError| match error {
                WriteError::Unreachable { .. } => Failure::unavailable(error.to_string()),
                other => Failure::internal(other),
            };
            let restored = engine.store.restore(backup).await.map_err(failed)?;
            // Where this server is reached is not where the one was that the backup is of.
            bootstrap::run(engine).await.map_err(failed)?;
            let services = engine.store.list("services", None);
            engine.addresses.reload(services.iter().map(|stored| view::tree(stored)));
            tracing::info!(user = user.name, ?restored, "restored a backup");
            let text = serde_json::to_vec(&restored).map_err(Failure::internal)?;
            Ok(respond::with_type(200, "application/json", text))
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// Does work that takes a while where nobody waits for the thread.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::internal)
}
