//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first Ctrl-C or SIGTERM cancels; the second ends the process at once.
pub(crate) fn shutdown_token() -> anyhow::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for patient in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if patient {
                cancelled.cancel();
            } else {
                std::process::exit(130);
            }
        }
    });
    Ok(token)
}
