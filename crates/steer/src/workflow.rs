//! `steer workflow`: the Observatory operator's functions behind a command line.

use std::{
    io::{IsTerminal as _, Read as _, Write as _, stdout},
    ops::ControlFlow,
    path::Path,
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::LogParams};
use steersman_observatory::{
    Observatory, Phase,
    cli::{self, RunOptions},
    types::{RerunMode, Shutdown},
};

use crate::{
    cli::{Drawing, WorkflowArgs, WorkflowCommand},
    client::Connection,
};

/// Columns for progress bars and timelines.
const WIDTH: usize = 60;
/// Lines of a timeline, so that it stays on a screen.
const LINES: usize = 30;

/// Does what the command says.
pub(crate) async fn run(command: WorkflowCommand) -> anyhow::Result<()> {
    match command {
        WorkflowCommand::Lint { files } => lint(&files),
        WorkflowCommand::Run { client, file, name, watch } => {
            let connection = Connection::open(&client).await?;
            let options = RunOptions { namespace: connection.namespace.clone(), name };
            for workflow in cli::run(&connection.client, &read(&file)?, &options).await? {
                let (namespace, name) = (workflow.namespace().unwrap_or_default(), workflow.name_any());
                println!("workflow {name} submitted");
                if watch {
                    follow(&connection, &namespace, &name).await?;
                }
            }
            Ok(())
        }
        WorkflowCommand::List { client, all_namespaces } => {
            let connection = Connection::open(&client).await?;
            let namespace = (!all_namespaces).then_some(connection.namespace.as_str());
            let workflows = cli::list(&connection.client, namespace).await?;
            print!("{}", cli::table(&workflows, Timestamp::now()));
            Ok(())
        }
        WorkflowCommand::Get(args) => {
            let workflow = open(&args).await?.1;
            print!("{}", cli::details(&workflow, Timestamp::now()));
            Ok(())
        }
        WorkflowCommand::Watch(args) => {
            let connection = Connection::open(&args.client).await?;
            follow(&connection, &connection.namespace, &args.name).await
        }
        WorkflowCommand::Logs { workflow, task, follow } => {
            let connection = Connection::open(&workflow.client).await?;
            let params = LogParams { follow, ..LogParams::default() };
            cli::logs(
                &connection.client,
                &connection.namespace,
                &workflow.name,
                task.as_deref(),
                &params,
                |task, attempt, line| {
                    println!("{task}/{attempt}: {line}");
                },
            )
            .await?;
            Ok(())
        }
        WorkflowCommand::Stop { workflow, now } => {
            let connection = Connection::open(&workflow.client).await?;
            let how = if now { Shutdown::Terminate } else { Shutdown::Stop };
            cli::stop(&connection.client, &connection.namespace, &workflow.name, how).await?;
            println!("workflow {} is told to stop", workflow.name);
            Ok(())
        }
        WorkflowCommand::Retry { workflow, tasks, all } => {
            let connection = Connection::open(&workflow.client).await?;
            let mode = if all { RerunMode::All } else { RerunMode::FromFailed };
            cli::retry(&connection.client, &connection.namespace, &workflow.name, mode, &tasks).await?;
            println!("workflow {} runs again", workflow.name);
            Ok(())
        }
        WorkflowCommand::Graph { workflow, output } => {
            for workflow in drawn(&workflow).await? {
                match output {
                    Drawing::Text => print!("{}", cli::text(&workflow)),
                    Drawing::Svg => print!("{}", cli::svg(&workflow)),
                    Drawing::Mermaid => print!("{}", cli::mermaid(&workflow)),
                }
            }
            Ok(())
        }
        WorkflowCommand::Explain { workflow, task } => {
            let found = open(&workflow).await?.1;
            println!("{}", cli::explain(&found, &task)?);
            Ok(())
        }
    }
}

fn lint(files: &[std::path::PathBuf]) -> anyhow::Result<()> {
    let mut problems = 0;
    for file in files {
        let findings = cli::lint(&read(file)?);
        problems += findings.len();
        for finding in findings {
            println!("{}:{finding}", file.display());
        }
    }
    match problems {
        0 => Ok(()),
        n => bail!("{n} problem(s) found"),
    }
}

/// The workflow that the arguments name, and the connection it came over.
async fn open(args: &WorkflowArgs) -> anyhow::Result<(Connection, Observatory)> {
    let connection = Connection::open(&args.client).await?;
    let workflow = cli::get(&connection.client, &connection.namespace, &args.name).await?;
    Ok((connection, workflow))
}

/// The workflows to draw: those of a file, where one of that name is here, else one of the cluster.
async fn drawn(args: &WorkflowArgs) -> anyhow::Result<Vec<Observatory>> {
    let path = Path::new(&args.name);
    if path == Path::new("-") || path.is_file() {
        return Ok(cli::read(&read(path)?)?);
    }
    Ok(vec![open(args).await?.1])
}

/// Shows how a workflow goes until it ends.
async fn follow(connection: &Connection, namespace: &str, name: &str) -> anyhow::Result<()> {
    let live = stdout().is_terminal();
    let (mut shown, mut last) = (String::new(), None);
    cli::watch(&connection.client, namespace, name, |workflow| {
        let mut picture = cli::progress(workflow, WIDTH) + "\n";
        if live {
            picture += &cli::timeline(workflow, WIDTH, LINES, Timestamp::now());
        }
        if picture != shown {
            // On a terminal the earlier picture is painted over.
            let above = shown.lines().count();
            let back = if live && above > 0 { format!("\x1b[{above}A\x1b[J") } else { String::new() };
            print!("{back}{picture}");
            let _ = stdout().flush();
            shown = picture;
        }
        last = Some(workflow.clone());
        if cli::is_over(workflow) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    let Some(workflow) = last else { return Ok(()) };
    if !live {
        print!("{}", cli::timeline(&workflow, WIDTH, LINES, Timestamp::now()));
    }
    match workflow.status.as_ref().map(|status| status.phase()) {
        Some(Phase::Failed) => bail!("workflow {name} failed; `steer workflow get {name}` says why"),
        _ => Ok(()),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
