//! Runs all controllers against the cluster of the current kubeconfig, which must not have a
//! controller manager and scheduler of its own.

use steersman::{CancellationToken, Manager, Options};
use steersman_controllers::{ControllerOptions, controllers};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let client = kube::Client::try_default().await?;
    let root_ca = std::env::args().nth(1).map(std::fs::read_to_string).transpose()?;
    let manager = Manager::new(client, Options::named("steer-controllers"));
    let stop = CancellationToken::new();
    let running =
        controllers(manager, ControllerOptions { root_ca, ..ControllerOptions::default() }).run(stop.clone());
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return Ok(ended?),
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    stop.cancel();
    Ok(running.await?)
}
