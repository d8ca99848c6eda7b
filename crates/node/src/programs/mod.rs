//! Programs inside the image `steersman.io/steer`: what its containers run.

mod echo;

pub use echo::{EchoOptions, serve_echo};

use tokio::signal::unix::{SignalKind, signal};

/// Does nothing until it is told to end, as the pause image does.
///
/// # Errors
/// When signals cannot be received.
pub async fn pause() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
