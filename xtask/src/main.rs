//! `cargo xtask`: the chores of developing this project.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::getpid;
use xtask::generate::{self, Mode};
use xtask::parts::{self, Part};

/// The chores of developing this project.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// The real programs that tests run against: lists what was found
    Parts {
        #[command(subcommand)]
        action: Option<PartsAction>,
    },
    /// Writes the files that are derived from others
    Generate {
        /// Only compare, and fail when a file is out of date
        #[arg(long)]
        check: bool,
        /// Which generators to run; all when none is named
        names: Vec<String>,
    },
}

#[derive(Subcommand)]
enum PartsAction {
    /// Gets parts that are missing: Debian packages, PyPI, Go modules
    Install {
        /// Which parts; all when none is named
        names: Vec<String>,
    },
    /// Starts a part and stays until Ctrl-C
    Run {
        part: Runnable,
        /// Also stop when standard input ends, for scripts
        #[arg(long)]
        until_eof: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Runnable {
    Kubernetes,
    Postgres,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Parts { action: None } => {
            list();
            Ok(())
        }
        Chore::Parts { action: Some(PartsAction::Install { names }) } => install(&names),
        Chore::Parts { action: Some(PartsAction::Run { part, until_eof }) } => run(part, until_eof),
        Chore::Generate { check, names } => generate(&names, if check { Mode::Check } else { Mode::Write }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for part in Part::ALL {
        match part.state() {
            Ok(found) => println!("{:<11} {found}", part.name()),
            Err(missing) => println!("{:<11} missing: {missing}", part.name()),
        }
    }
}

fn install(names: &[String]) -> anyhow::Result<()> {
    let chosen: Vec<Part> = match names {
        [] => Part::ALL.into(),
        names => names.iter().map(|name| Part::from_name(name)).collect::<Result<_, _>>()?,
    };
    let mut failed = Vec::new();
    for part in chosen {
        let name = part.name();
        let begin = Instant::now();
        let installed = part.install(&mut |step| eprintln!("{name}: {step}"));
        match installed.and_then(|()| Ok(part.state()?)) {
            Ok(found) => println!("{name:<11} {found} ({:.1} s)", begin.elapsed().as_secs_f32()),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("not installed: {}", failed.join(", "))
}

/// Starts a part, prints how to reach it, and keeps it until we are told to stop.
fn run(part: Runnable, until_eof: bool) -> anyhow::Result<()> {
    // Blocked before any thread is there, so that every thread inherits it and only the wait
    // below sees these signals.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    if until_eof {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = kill(getpid(), Signal::SIGTERM);
        });
    }
    let begin = Instant::now();
    match part {
        Runnable::Kubernetes => {
            eprintln!("starting Kubernetes…");
            let kubernetes = parts::kubernetes()?;
            eprintln!("ready after {:.1} s", begin.elapsed().as_secs_f32());
            for process in kubernetes.processes() {
                eprintln!("  {:<24} pid {:<7} {}", process.name(), process.pid(), process.log().display());
            }
            println!("export KUBECONFIG={}", kubernetes.kubeconfig().display());
            signals.wait()?;
        }
        Runnable::Postgres => {
            let postgres = parts::postgres()?;
            eprintln!("ready after {:.1} s", begin.elapsed().as_secs_f32());
            println!("export DATABASE_URL={}", postgres.url());
            signals.wait()?;
        }
    }
    Ok(())
}

fn generate(names: &[String], mode: Mode) -> anyhow::Result<()> {
    let mut generators = generate::generators();
    let known: Vec<_> = generators.iter().map(|generator| generator.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no generator {unknown:?}; there are {}", known.join(", "));
    }
    generators.retain(|one| names.is_empty() || names.iter().any(|name| name == one.name));
    generate::run(&generators, mode, &mut |step| eprintln!("{step}"))
}
