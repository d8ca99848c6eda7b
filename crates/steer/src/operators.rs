//! `steer run`: operators on any Kubernetes.

use std::net::SocketAddr;

use anyhow::Context as _;
use kube::Client;
use steersman::{CancellationToken, LeaseOptions, Manager, ManagerError, Options};
use steersman_infra::action::web::PrivateAddresses;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    cli::{Operator, RunArgs},
    client::load_config,
    crds, elasti,
    infra::{self, Infra},
    signals, webhooks,
};

/// Runs the operators until told to stop, or until leadership is lost.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let secure_metrics = args.metrics.secure();
    let shutdown = signals::shutdown_token()?;
    let config = load_config(&args.connection).await?;
    let server = config.cluster_url.clone();
    let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
    client.apiserver_version().await.with_context(|| format!("no answer from {server}"))?;
    if args.install_crds {
        crds::install(&client).await.context("cannot install the operators' definitions")?;
    }
    let mut running = JoinSet::new();
    // What serves whether this process leads or not; it ends with the process.
    let mut beside = JoinSet::new();
    for (index, operator) in chosen(&args.operators).into_iter().enumerate() {
        let manager = Manager::new(
            client.clone(),
            Options { secure_metrics: secure_metrics.clone(), ..options(operator, args, index) },
        );
        let manager = match operator {
            Operator::Observatory => {
                steersman_observatory::limited_controllers(manager, args.observatory.limits())
            }
            Operator::Infra => infra(&client, manager, args, &mut beside, &shutdown).await?,
            Operator::Elasti => {
                let options = elasti::options(&args.elasti);
                let address = args.elasti.elasti_address;
                let calls = elasti::endpoint(address, client.clone(), &manager, &options).await?;
                beside.spawn(calls);
                steersman_elasti::controllers(manager, options)
            }
            Operator::Webapp | Operator::All => manager.controller(steersman_webapp::controller()),
        };
        let manager =
            webhooks::add(manager, operator, &client, &args.webhooks, &args.lease_namespace, index)?;
        running.spawn(run_one(operator, manager, shutdown.clone()));
    }
    // The first that ends takes the others with it: a process whose operators are half gone helps nobody.
    let mut result = Ok(());
    while let Some(ended) = running.join_next().await {
        shutdown.cancel();
        result = result.and(ended?);
    }
    result
}

/// The infrastructure operator, with its REST API beside it on every replica.
async fn infra(
    client: &Client,
    manager: Manager,
    args: &RunArgs,
    beside: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Manager> {
    let infra = Infra::open(&args.data_dir, &args.lease_namespace, PrivateAddresses::Refuse).await?;
    let listener = TcpListener::bind(args.rest_address).await.with_context(|| {
        format!("cannot listen on {}: choose another address with --rest-address", args.rest_address)
    })?;
    let address = listener.local_addr()?;
    tracing::info!(rest = %address, "serving the REST API");
    let access = infra::access(address, args.rest_token.clone(), args.rest_access)?;
    let (client, options, stop) = (client.clone(), infra.rest(access), shutdown.clone());
    beside.spawn(async move {
        if let Err(error) = steersman_infra::rest(client, options, listener, stop).await {
            tracing::error!(%error, "the REST API is not served any more");
        }
    });
    Ok(infra.add_to(manager))
}

async fn run_one(
    operator: Operator,
    mut manager: Manager,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let endpoints = manager.listen().await?;
    let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string()).unwrap_or_default();
    let (metrics, health) = (shown(endpoints.metrics), shown(endpoints.health));
    tracing::info!(operator = operator.name(), metrics, health, "running");
    manager.run(shutdown).await.map_err(anyhow::Error::new)
}

/// Each operator once, `all` standing for every one.
fn chosen(named: &[Operator]) -> Vec<Operator> {
    let every = [Operator::Webapp, Operator::Observatory, Operator::Infra, Operator::Elasti];
    every.into_iter().filter(|o| named.contains(o) || named.contains(&Operator::All)).collect()
}

/// The first operator answers at the addresses that were asked for, further ones at free ports.
fn options(operator: Operator, args: &RunArgs, index: usize) -> Options {
    let at = |address: SocketAddr| if index == 0 { address } else { SocketAddr::new(address.ip(), 0) };
    Options {
        lease: (args.leader_elect && !args.no_leader_election)
            .then(|| LeaseOptions::new(&args.lease_namespace, operator.lease())),
        metrics: Some(at(args.metrics_address)),
        health: Some(at(args.health_address)),
        ..Options::named(operator.name())
    }
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Webapp => steersman_webapp::OPERATOR,
            Self::Observatory => steersman_observatory::OPERATOR,
            Self::Infra => steersman_infra::OPERATOR,
            Self::Elasti => steersman_elasti::OPERATOR,
            Self::All => "all",
        }
    }

    pub(crate) fn lease(self) -> &'static str {
        match self {
            Self::Observatory => steersman_observatory::LEASE,
            Self::Infra => steersman_infra::LEASE,
            Self::Elasti => steersman_elasti::LEASE,
            Self::Webapp | Self::All => steersman_webapp::LEASE,
        }
    }
}

/// The exit code for an error of `steer run`, where it has one of its own.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    error.downcast_ref::<ManagerError>().map(ManagerError::exit_code)
}
