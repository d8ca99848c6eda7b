//! `steer run`: operators on any Kubernetes.

use anyhow::{Context as _, bail};
use kube::Client;
use steersman::{LeaseOptions, Manager, ManagerError, Options};

use crate::{
    cli::{Operator, RunArgs},
    client::load_config,
    crds, signals,
};

/// Runs the operators until told to stop, or until leadership is lost.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let shutdown = signals::shutdown_token()?;
    let config = load_config(&args.connection).await?;
    let server = config.cluster_url.clone();
    let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
    client.apiserver_version().await.with_context(|| format!("no answer from {server}"))?;
    if args.install_crds {
        crds::install(&client).await.context("cannot install the operators' definitions")?;
    }
    let wanted = |operator| args.operators.iter().any(|o| *o == operator || *o == Operator::All);
    if !wanted(Operator::Webapp) {
        bail!("no operator to run");
    }
    let options = Options {
        lease: (!args.no_leader_election).then(|| {
            LeaseOptions::new(&args.lease_namespace, steersman_webapp::LEASE)
        }),
        metrics: Some(args.metrics_address),
        health: Some(args.health_address),
        ..Options::named(steersman_webapp::OPERATOR)
    };
    let mut manager = Manager::new(client, options).controller(steersman_webapp::controller());
    let endpoints = manager.listen().await?;
    if let (Some(metrics), Some(health)) = (endpoints.metrics, endpoints.health) {
        tracing::info!(%server, %metrics, %health, "running the WebApp operator");
    }
    manager.run(shutdown).await.map_err(anyhow::Error::new)
}

/// The exit code for an error of `steer run`: 4 when leadership was lost.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    match error.downcast_ref::<ManagerError>() {
        Some(ManagerError::LostLease { .. }) => Some(4),
        _ => None,
    }
}
