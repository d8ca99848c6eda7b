//! Settings from environment variables, under the names that the first version had.
//!
//! | variable | default |
//! |---|---|
//! | `RECONCILE_INTERVAL` | 60 (seconds) |
//! | `MAX_CONCURRENT_RECONCILES` | 5 |
//! | `DRIFT_INTERVAL` | 300 (seconds) |
//! | `BACKOFF_BASE_DELAY`, `BACKOFF_MAX_DELAY` | 60, 61440 (seconds) |
//! | `GITHUB_TOKEN`, `GITHUB_API_URL` | none, `https://api.github.com` |
//! | `GITHUB_ACTIONS_TIMEOUT`, `GITHUB_ACTIONS_POLL_INTERVAL` | 3600, 10 (seconds) |
//! | `PLUGIN_CONFIGS` | `{}`: settings by plugin, as JSON |
//! | `ENABLED_ACTION_PLUGINS` | all, or names with commas |
//! | `TERRAFORM_MODULES`, `TERRAFORM_WORKSPACES`, `TERRAFORM_PROGRAM` | `modules` and `workspaces` in the data folder, `terraform` |
//! | `ACTION_PRIVATE_ADDRESSES` | `refuse`, or `allow` |

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::action::Registry;
use crate::action::github::GitHubActions;
use crate::action::http::Http;
use crate::action::terraform::{Terraform, TerraformOptions};
use crate::action::web::{PrivateAddresses, Web, WebOptions};
use crate::settings::OperatorController;

/// What the environment says.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The pace.
    pub controller: OperatorController,
    /// The plugins with their settings.
    pub plugins: Registry,
}

/// Why the environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable has a value that it cannot have.
    #[error("{name} is {found:?}, and should be {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No secure connections can be made.
    #[error("no secure connections can be made: {0}")]
    Tls(#[from] rustls::Error),
}

impl Environment {
    /// Reads the variables with `get`, such as `|name| std::env::var(name).ok()`. What Terraform
    /// keeps goes into the folder `data`, unless a variable says otherwise.
    ///
    /// # Errors
    /// When a variable has a value that it cannot have.
    pub fn read(get: impl Fn(&str) -> Option<String>, data: &Path) -> Result<Self, EnvironmentError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let seconds = |name: &'static str, usual: Duration| match get(name) {
            None => Ok(usual),
            Some(found) => match found.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok()) {
                Some(seconds) if !seconds.is_zero() => Ok(seconds),
                _ => Err(EnvironmentError::Value { name, found, expected: "a number of seconds above 0" }),
            },
        };
        let usual = OperatorController::default();
        let at_once = "MAX_CONCURRENT_RECONCILES";
        let controller = OperatorController {
            reconcile_interval: seconds("RECONCILE_INTERVAL", usual.reconcile_interval)?,
            max_concurrent_reconciles: match get(at_once) {
                None => usual.max_concurrent_reconciles,
                Some(found) => {
                    found.parse().ok().filter(|number| *number > 0).ok_or(EnvironmentError::Value {
                        name: at_once,
                        found,
                        expected: "a whole number above 0",
                    })?
                }
            },
            drift_interval: seconds("DRIFT_INTERVAL", usual.drift_interval)?,
            back_off_first: seconds("BACKOFF_BASE_DELAY", usual.back_off_first)?,
            back_off_longest: seconds("BACKOFF_MAX_DELAY", usual.back_off_longest)?,
        };
        let private_addresses = match get("ACTION_PRIVATE_ADDRESSES").as_deref() {
            None | Some("refuse") => PrivateAddresses::Refuse,
            Some("allow") => PrivateAddresses::Allow,
            Some(found) => {
                let (name, found) = ("ACTION_PRIVATE_ADDRESSES", found.to_owned());
                return Err(EnvironmentError::Value { name, found, expected: "refuse or allow" });
            }
        };
        let mut settings: BTreeMap<String, Map<String, Value>> = match get("PLUGIN_CONFIGS") {
            None => BTreeMap::new(),
            // It may hold secrets, so it is not repeated.
            Some(text) => serde_json::from_str(&text).map_err(|error| EnvironmentError::Value {
                name: "PLUGIN_CONFIGS",
                found: error.to_string(),
                expected: "a JSON object of objects, one per plugin",
            })?,
        };
        let github = settings.entry("github_actions".into()).or_default();
        for (variable, field) in [("GITHUB_TOKEN", "token"), ("GITHUB_API_URL", "api_url")] {
            if let Some(value) = get(variable) {
                github.entry(field).or_insert(Value::String(value));
            }
        }
        for (variable, field) in [
            ("GITHUB_ACTIONS_TIMEOUT", "timeout_seconds"),
            ("GITHUB_ACTIONS_POLL_INTERVAL", "poll_interval_seconds"),
        ] {
            if get(variable).is_some() {
                let value = seconds(variable, Duration::ZERO)?.as_secs().max(1);
                github.entry(field).or_insert(json!(value));
            }
        }
        let web = Web::new(WebOptions { private_addresses, ..WebOptions::default() })?;
        let folder = |name: &str, usual: &str| get(name).map_or_else(|| data.join(usual), Into::into);
        let mut terraform = TerraformOptions::new(
            folder("TERRAFORM_MODULES", "modules"),
            folder("TERRAFORM_WORKSPACES", "workspaces"),
        );
        if let Some(program) = get("TERRAFORM_PROGRAM") {
            terraform.program = program.into();
        }
        let enabled = get("ENABLED_ACTION_PLUGINS");
        let is_enabled = |name: &str| {
            enabled.as_ref().is_none_or(|names| names.split(',').any(|enabled| enabled.trim() == name))
        };
        let mut plugins = Registry::new();
        if is_enabled("http") {
            plugins = plugins.with(Http::new(web.clone()));
        }
        if is_enabled("github_actions") {
            plugins = plugins.with(GitHubActions::new(web));
        }
        if is_enabled("terraform") {
            plugins = plugins.with(Terraform::new(terraform));
        }
        let plugins =
            settings.into_iter().fold(plugins, |plugins, (name, all)| plugins.configured(&name, all));
        Ok(Self { controller, plugins })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Resource;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Environment::read(find, Path::new("/nowhere"))
    }

    #[test]
    fn an_empty_environment_gives_the_defaults_and_every_plugin() {
        let read = read(&[]).expect("settings");
        assert_eq!(read.controller, OperatorController::default());
        let known = read.plugins.describe();
        let names: Vec<&str> = known.iter().map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["github_actions", "http", "terraform"]);
    }

    #[test]
    fn the_known_variables_are_honoured() {
        let read = read(&[
            ("RECONCILE_INTERVAL", "30"),
            ("MAX_CONCURRENT_RECONCILES", "9"),
            ("GITHUB_TOKEN", "ghp_x"),
            ("GITHUB_ACTIONS_TIMEOUT", "60"),
            ("PLUGIN_CONFIGS", r#"{"github_actions": {"owner": "acme"}}"#),
            ("ENABLED_ACTION_PLUGINS", "http, github_actions"),
        ])
        .expect("settings");
        assert_eq!(read.controller, OperatorController::new(Duration::from_secs(30), 9));
        assert_eq!(read.plugins.describe().len(), 2);
        let mut resource = Resource::default();
        resource.spec.action_plugin = "github_actions".into();
        let config = Value::Object(read.plugins.config(&resource, None));
        assert_eq!(config, json!({"owner": "acme", "token": "ghp_x", "timeout_seconds": 60}));
    }

    #[test]
    fn wrong_values_are_named_and_secrets_are_not_repeated() {
        for (name, value) in [
            ("RECONCILE_INTERVAL", "soon"),
            ("MAX_CONCURRENT_RECONCILES", "0"),
            ("ACTION_PRIVATE_ADDRESSES", "maybe"),
        ] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name} is \"{value}\", and should be")), "{error}");
        }
        let error =
            read(&[("PLUGIN_CONFIGS", r#"{"http": "hunter22"}"#)]).expect_err("no settings").to_string();
        assert!(error.starts_with("PLUGIN_CONFIGS is"), "{error}");
    }
}
