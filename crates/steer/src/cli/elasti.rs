//! What can be asked about what scales to zero.

use clap::{Args, Subcommand};

use super::{ClientArgs, ConnectionArgs, address};

#[derive(Args, Debug)]
pub(crate) struct ResolverArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Address that takes requests; port 8012 of $HOST or of every address by default
    #[arg(long, env = "STEER_RESOLVER_ADDRESS", value_parser = address, value_name = "ADDRESS")]
    pub(crate) proxy_address: Option<std::net::SocketAddr>,
    /// Address of health, metrics and activity; port 8013 by default
    #[arg(long, env = "STEER_RESOLVER_INTERNAL_ADDRESS", value_parser = address, value_name = "ADDRESS")]
    pub(crate) internal_address: Option<std::net::SocketAddr>,
}

/// What can be done with what scales to zero.
#[derive(Subcommand, Debug)]
pub(crate) enum ElastiCommand {
    /// List ElastiServices
    List {
        #[command(flatten)]
        client: ClientArgs,
        /// Of all namespaces
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Show one and what troubles it
    Get(ElastiServiceArgs),
    /// Wake its target
    Wake(ElastiServiceArgs),
    /// Put its target to sleep without waiting for the cooldown, unless somebody needs it
    Sleep(ElastiServiceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ElastiServiceArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The ElastiService
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
