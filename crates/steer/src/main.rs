//! `steer`: one binary for a control plane on this machine, a node, and the operators.
//!
//! Only argument parsing and wiring live here; [`client`] is what `kubectl` does, for machines
//! that do not have it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

#[macro_use]
mod output;

mod cli;
mod client;
mod crds;
mod describe;
mod elasti;
mod infra;
mod infra_commands;
mod metrics;
mod node;
mod observatory;
mod operators;
mod plugin;
mod rbac;
mod signals;
mod store;
mod up;
mod webhooks;
mod workflow;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command, KubeconfigArgs};
use steersman_elasti::sentry::Sentry;
use steersman_node::programs::EchoOptions;
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Exit code when something could not be started.
const COULD_NOT_START: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if matches!(cli.command, Command::PodInit { .. }) {
        return pod_init();
    }
    let sentry = match elasti::sentry(&cli.command) {
        Ok(sentry) => sentry,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(COULD_NOT_START);
        }
    };
    start_logging(cli.log.as_deref(), &cli.command, sentry.as_ref());
    let result = run(cli.command);
    if let Some(sentry) = sentry {
        sentry.flush();
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            let code = if error.is::<CouldNotStart>() {
                Some(COULD_NOT_START)
            } else {
                operators::exit_code(&error)
            };
            ExitCode::from(code.unwrap_or(1))
        }
    }
}

/// Becomes the first process of a pod, before any thread is started.
fn pod_init() -> ExitCode {
    match steersman_node::sandbox_init() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Marks an error that kept a server from starting.
#[derive(Debug, thiserror::Error)]
#[error("could not start")]
struct CouldNotStart;

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Version => {
            println!("steer {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "steer", &mut script);
            print!("{}", String::from_utf8_lossy(&script));
            Ok(())
        }
        Command::Kubeconfig(args) => kubeconfig(&args),
        Command::Crds(args) => crds::write(&args),
        other => {
            let _ = rustls::crypto::ring::default_provider().install_default();
            tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(other))
        }
    }
}

async fn serve(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::up(&args).await,
        Command::Run(args) => operators::run(&args).await,
        Command::Node(args) => node::run(&args).await,
        Command::ServeEcho(args) => serve_echo(&args).await,
        Command::Pause => Ok(steersman_node::programs::pause().await?),
        Command::Workflow(command) => workflow::run(command).await,
        Command::Infra(args) => infra_commands::run(args).await,
        Command::Plugin(command) => plugin::run(command).await,
        Command::Elasti(command) => elasti::run(command).await,
        Command::Resolver(args) => elasti::resolver(&args).await,
        Command::Backup(args) => client::backup::backup(&args).await,
        Command::Restore(args) => client::backup::restore(&args).await,
        Command::Apply(args) => client::apply::apply(&args).await,
        Command::Get(args) => client::get::get(&args).await,
        Command::Describe(args) => client::describe::describe(&args).await,
        Command::Scale(args) => client::scale::scale(&args).await,
        Command::Delete(args) => client::delete::delete(&args).await,
        Command::Logs(args) => client::logs::logs(&args).await,
        Command::Rbac(args) => rbac::write(&args).await,
        Command::Kubeconfig(_)
        | Command::Crds(_)
        | Command::Version
        | Command::Completions { .. }
        | Command::PodInit { .. } => Ok(()),
    }
}

async fn serve_echo(args: &cli::ServeEchoArgs) -> anyhow::Result<()> {
    let shutdown = signals::shutdown_token()?;
    let mut options = EchoOptions::from_env(|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    if let Some(port) = args.port {
        options.port = port;
    }
    Ok(steersman_node::programs::serve_echo(options, shutdown).await?)
}

fn kubeconfig(args: &KubeconfigArgs) -> anyhow::Result<()> {
    let path = args.data_dir.join("kubeconfig");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| anyhow::anyhow!("cannot read {}: {e}; has `steer up` run here?", path.display()))?;
    if args.path {
        println!("{}", std::path::absolute(&path)?.display());
    } else {
        print!("{text}");
    }
    Ok(())
}

/// Servers log what they do; commands only what went wrong.
fn start_logging(filter: Option<&str>, command: &Command, sentry: Option<&Sentry>) {
    let usual = match command {
        Command::Run(_) | Command::Node(_) | Command::ServeEcho(_) | Command::Resolver(_) => "info",
        _ => "warn",
    };
    let filter = tracing_subscriber::EnvFilter::try_new(filter.unwrap_or(usual))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).with(sentry.map(Sentry::layer)).init();
}
