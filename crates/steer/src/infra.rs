//! The infrastructure operator's plugins and history, as `steer` sets them up.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::{Map, Value};
use steersman::Manager;
use steersman_infra::{
    History, OperatorController, Options, RestOptions,
    action::{
        Registry,
        github::GitHubActions,
        http::Http,
        terraform::{Terraform, TerraformOptions},
        web::{PrivateAddresses, Web, WebOptions},
    },
    controllers,
    rest::Access,
};

/// What the operator and its REST face share.
#[derive(Clone)]
pub(crate) struct Infra {
    plugins: Registry,
    history: History,
    namespace: String,
}

impl Infra {
    /// Opens the history in a folder and sets up the plugins; `private` says what they may reach.
    pub(crate) fn open(dir: &Path, namespace: &str, private: PrivateAddresses) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        let history =
            History::open(&dir.join("history.db")).context("cannot open the history of resources")?;
        let web = Web::new(WebOptions { private_addresses: private, ..WebOptions::default() })
            .context("cannot set up the plugins' client")?;
        let mut plugins = Registry::new()
            .with(Http::new(web.clone()))
            .with(GitHubActions::new(web))
            .with(Terraform::new(TerraformOptions::new(dir.join("modules"), dir.join("workspaces"))));
        if let Ok(token) = std::env::var("GITHUB_TOKEN") {
            let settings = Map::from_iter([("token".to_owned(), Value::String(token))]);
            plugins = plugins.configured("github_actions", settings);
        }
        Ok(Self { plugins, history, namespace: namespace.to_owned() })
    }

    /// Adds the operator to a manager.
    pub(crate) fn add_to(&self, manager: Manager) -> Manager {
        let options = Options {
            controller: OperatorController::default(),
            plugins: self.plugins.clone(),
            history: self.history.clone(),
            namespace: self.namespace.clone(),
        };
        controllers(manager, options)
    }

    /// What the REST face needs.
    pub(crate) fn rest(&self, access: Access) -> RestOptions {
        let options = RestOptions::new(self.plugins.clone(), self.history.clone());
        RestOptions { namespace: self.namespace.clone(), access, ..options }
    }
}
