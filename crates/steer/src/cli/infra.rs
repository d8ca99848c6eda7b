//! What can be asked about infrastructure and its plugins.

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub(crate) struct InfraArgs {
    #[command(subcommand)]
    pub(crate) command: InfraCommand,
    /// Address of the REST API; by default that of the `steer up` of this folder, else http://localhost:8000
    #[arg(long, global = true, env = "STEER_REST_URL", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Bearer token for it
    #[arg(long, global = true, env = "STEER_REST_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Print what the API answered, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What can be asked about infrastructure.
#[derive(Subcommand, Debug)]
pub(crate) enum InfraCommand {
    /// List resource types
    Types,
    /// List resources, newest first
    List {
        /// Only those that are pending, reconciling, ready, failed or deleting
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only those of this action plugin
        #[arg(long, value_name = "NAME")]
        plugin: Option<String>,
        /// Only those of this type
        #[arg(long = "type", value_name = "NAME")]
        kind: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Show a resource
    Get(InfraResource),
    /// List the attempts for a resource, newest first, also for one that is gone (by its number)
    History {
        #[command(flatten)]
        resource: InfraResource,
        /// At most so many
        #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Reconcile a resource now
    Reconcile(InfraResource),
    /// Print what the last successful attempt brought forth, as JSON
    Outputs(InfraResource),
}

#[derive(Args, Debug)]
pub(crate) struct InfraResource {
    /// The resource: its number, TYPE/NAME, or TYPE/VERSION/NAME
    #[arg(value_name = "RESOURCE")]
    pub(crate) name: String,
}

/// What can be done about plugins.
#[derive(Subcommand, Debug)]
pub(crate) enum PluginCommand {
    /// Check a plugin against the contract; it really applies and destroys
    Conformance(ConformanceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ConformanceArgs {
    /// The operator's settings for the plugin, as JSON
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub(crate) settings: String,
    /// Parameters of the resource that it makes and destroys, as JSON
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub(crate) parameters: String,
    /// How long an answer may take, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// The plugin: a program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
