//! Reporting on an object that may be gone by now.

use serde::Serialize;
use steersman::{Context, Error};

/// Writes the status of the object being reconciled; one that is gone, or another by now, needs
/// none.
pub(crate) async fn report<S: Serialize + Sync>(status: &S, cx: &Context) -> Result<(), Error> {
    match cx.apply_status(status).await {
        Err(error) if error.has_code(404) => Ok(()),
        other => other,
    }
}
