//! What can be asked about workflows.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ClientArgs;

/// What can be done with workflows.
#[derive(Subcommand, Debug)]
pub(crate) enum WorkflowCommand {
    /// Check files without a cluster; every problem with its line and column
    Lint {
        /// Files; - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Submit the workflows of a file
    Run {
        #[command(flatten)]
        client: ClientArgs,
        /// The file; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Name to give the workflow instead of the one in the file
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Wait for the end and show how it goes; exit code 1 if it fails
        #[arg(long, short)]
        watch: bool,
    },
    /// List workflows, newest first
    List {
        #[command(flatten)]
        client: ClientArgs,
        /// Of all namespaces
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Show a workflow and its tasks
    Get(WorkflowArgs),
    /// Follow a workflow to its end; exit code 1 if it fails
    Watch(WorkflowArgs),
    /// Print what the tasks wrote
    Logs {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// Only this task
        #[arg(value_name = "TASK")]
        task: Option<String>,
        /// Go on as more is written
        #[arg(long, short)]
        follow: bool,
    },
    /// End a workflow early: running tasks finish, no further ones start
    Stop {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// End running tasks too
        #[arg(long)]
        now: bool,
    },
    /// Run again what did not succeed, or the tasks named and what depends on them
    Retry {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// Tasks to run again
        #[arg(value_name = "TASK")]
        tasks: Vec<String>,
        /// Run everything again
        #[arg(long, conflicts_with = "tasks")]
        all: bool,
    },
    /// Draw a workflow
    Graph {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// As what
        #[arg(long, short, value_enum, default_value = "text")]
        output: Drawing,
    },
    /// Say why a task is not running
    Explain {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// The task
        #[arg(value_name = "TASK")]
        task: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct WorkflowArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The workflow; for `graph` also a file
    #[arg(value_name = "WORKFLOW")]
    pub(crate) name: String,
}

/// How a workflow is drawn.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawing {
    /// Lines of text
    Text,
    /// A picture
    Svg,
    /// For Markdown
    Mermaid,
}
