//! The infrastructure operator's plugins and history, as `steer` sets them up.

use std::{fs, net::SocketAddr, path::Path};

use anyhow::Context as _;
use steersman::{Manager, system_clock};
use steersman_infra::{
    Environment, History, Inputs, OperatorController, Options, PostgresOptions, RestOptions,
    action::{Registry, web::PrivateAddresses},
    controllers,
    history::HistoryError,
    rest::Access,
};

use crate::cli::RestAccess;

/// What the operator and its REST face share.
#[derive(Clone)]
pub(crate) struct Infra {
    controller: OperatorController,
    plugins: Registry,
    inputs: Inputs,
    history: History,
    namespace: String,
}

impl Infra {
    /// Sets everything up as the environment says, with SQLite in a folder where it names no
    /// database; `private` says what plugins may reach where it says nothing about that.
    pub(crate) async fn open(dir: &Path, namespace: &str, private: PrivateAddresses) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        let variable = |name: &str| match (std::env::var(name).ok(), name, private) {
            (None, "ACTION_PRIVATE_ADDRESSES", PrivateAddresses::Allow) => Some("allow".to_owned()),
            (value, ..) => value,
        };
        let environment = Environment::read(variable, dir).context("the environment cannot be used")?;
        let history = match &environment.database {
            Some(database) => shared_history(database).await?,
            None => History::open(&dir.join("history.db")).context("cannot open the history of resources")?,
        };
        let Environment { controller, plugins, inputs, .. } = environment;
        Ok(Self { controller, plugins, inputs, history, namespace: namespace.to_owned() })
    }

    /// Adds the operator and its inputs to a manager.
    pub(crate) fn add_to(&self, manager: Manager) -> Manager {
        let options = Options {
            controller: self.controller,
            plugins: self.plugins.clone(),
            history: self.history.clone(),
            namespace: self.namespace.clone(),
        };
        let manager = self.inputs.add_to(manager, &self.namespace, &self.plugins, &system_clock());
        controllers(manager, options)
    }

    /// What the REST face needs.
    pub(crate) fn rest(&self, access: Access) -> RestOptions {
        let options = RestOptions::new(self.plugins.clone(), self.history.clone());
        let (inputs, namespace) = (self.inputs.clone(), self.namespace.clone());
        RestOptions { inputs, namespace, access, ..options }
    }
}

/// The database that `DB_*` names, for the store of `steer up` as well.
pub(crate) fn database_url() -> anyhow::Result<Option<String>> {
    let database = Environment::database(|name| std::env::var(name).ok());
    Ok(database.context("the environment cannot be used")?.map(|database| database.url()))
}

/// Who may use the REST API at an address.
pub(crate) fn access(address: SocketAddr, token: Option<String>, said: RestAccess) -> anyhow::Result<Access> {
    let access = match (token, said) {
        (Some(token), _) => Access::Token(token),
        (None, RestAccess::Auto) => Access::Local,
        (None, RestAccess::Published) => Access::Published,
        (None, RestAccess::Everybody) => Access::Everybody,
    };
    access.check(address).context(
        "set a token with --rest-token (STEER_REST_TOKEN), or say with --rest-access who may use it without",
    )?;
    Ok(access)
}

/// A history in PostgreSQL. A server that is not there yet keeps nobody from starting: resources
/// are reconciled without it, and their history is written once it is there.
async fn shared_history(database: &PostgresOptions) -> anyhow::Result<History> {
    let history = History::postgres(database).context("cannot set up the history of resources")?;
    match history.check().await {
        Ok(()) => {}
        Err(error @ HistoryError::Unreachable { .. }) => {
            tracing::warn!(%error, "starting without the history; it is tried again");
        }
        Err(error) => return Err(error).context("cannot open the history of resources"),
    }
    Ok(history)
}
