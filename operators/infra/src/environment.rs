//! Settings from environment variables, under the names that the first version had.
//!
//! | variable | default |
//! |---|---|
//! | `RECONCILE_INTERVAL` | 60 (seconds) |
//! | `MAX_CONCURRENT_RECONCILES` | 5 |
//! | `DRIFT_INTERVAL` | 300 (seconds) |
//! | `BACKOFF_BASE_DELAY`, `BACKOFF_MAX_DELAY` | 60, 61440 (seconds) |
//! | `GITHUB_TOKEN`, `GITHUB_API_URL` | none, `https://api.github.com` |
//! | `GITLAB_TOKEN`, `GITLAB_TRIGGER_TOKEN`, `GITLAB_API_URL` | none, none, `https://gitlab.com/api/v4` |
//! | `GITHUB_ACTIONS_TIMEOUT`, `GITHUB_ACTIONS_POLL_INTERVAL` | 3600, 10 (seconds) |
//! | `PLUGIN_CONFIGS` | `{}`: settings by plugin, as JSON; one with a `command` is a process of its own |
//! | `ENABLED_ACTION_PLUGINS` | all, or names with commas |
//! | `INPUT_CONFIGS` | `{}`: inputs by name, as JSON: `{"orders": {"plugin": "rabbitmq", …}}` |
//! | `ENABLED_INPUT_PLUGINS` | all, or names with commas |
//! | `TERRAFORM_MODULES`, `TERRAFORM_WORKSPACES`, `TERRAFORM_PROGRAM` | `modules` and `workspaces` in the data folder, `terraform` |
//! | `ACTION_PRIVATE_ADDRESSES` | `refuse`, or `allow` |
//! | `ACTION_CA_FILE` | none: certificate authorities (PEM) that plugins trust beside the machine's |
//! | `DB_HOST`, `DB_PORT`, `DB_NAME`, `DB_USER`, `DB_PASSWORD` | SQLite in the data folder; once one of them is set: `localhost`, 5432, `operator_controller`, `operator`, none |
//! | `DB_SSLMODE`, `DB_SSLROOTCERT` | `disable`; `require`: encrypted, whoever answers; or `verify-full`: the certificate is checked, against the machine's authorities or those in a file |

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::action::Registry;
use crate::action::github::GitHubActions;
use crate::action::gitlab::GitLab;
use crate::action::http::Http;
use crate::action::terraform::{Terraform, TerraformOptions};
use crate::action::web::{PrivateAddresses, Web, WebOptions};
use crate::certificates;
use crate::history::{PostgresOptions, Tls};
use crate::input::Inputs;
use crate::plugin::{ProcessOptions, ProcessPlugin};
use crate::settings::OperatorController;

/// The plugins in the operator's own process.
const BUILT_IN: [&str; 4] = ["github_actions", "gitlab", "http", "terraform"];

/// What the environment says.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The pace.
    pub controller: OperatorController,
    /// The plugins with their settings.
    pub plugins: Registry,
    /// Ways in beside the REST API.
    pub inputs: Inputs,
    /// The PostgreSQL of the history, if one is named.
    pub database: Option<PostgresOptions>,
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
        let gitlab = settings.entry("gitlab".into()).or_default();
        for (variable, field) in [
            ("GITLAB_TOKEN", "token"),
            ("GITLAB_TRIGGER_TOKEN", "trigger_token"),
            ("GITLAB_API_URL", "api_url"),
        ] {
            if let Some(value) = get(variable) {
                gitlab.entry(field).or_insert(Value::String(value));
            }
        }
        let authorities = match get("ACTION_CA_FILE") {
            None => Vec::new(),
            Some(path) => certificates::read(Path::new(&path)).map_err(|found| EnvironmentError::Value {
                name: "ACTION_CA_FILE",
                found,
                expected: "a PEM file with certificates of authorities",
            })?,
        };
        let web = Web::new(WebOptions { private_addresses, authorities, ..WebOptions::default() })?;
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
            plugins = plugins.with(GitHubActions::new(web.clone()));
        }
        if is_enabled("gitlab") {
            plugins = plugins.with(GitLab::new(web));
        }
        if is_enabled("terraform") {
            plugins = plugins.with(Terraform::new(terraform));
        }
        for (name, mut all) in settings {
            let outside = ProcessOptions::take_from(&mut all).map_err(|why| EnvironmentError::Value {
                name: "PLUGIN_CONFIGS",
                found: format!("{name}: {why}"),
                expected: "a command that is a list of program and arguments, and times in seconds",
            })?;
            if let Some(options) = outside.filter(|_| is_enabled(&name)) {
                if BUILT_IN.contains(&name.as_str()) {
                    return Err(EnvironmentError::Value {
                        name: "PLUGIN_CONFIGS",
                        found: format!("a command for {name}"),
                        expected: "another name for a plugin of your own: this one is built in",
                    });
                }
                plugins = plugins.with(ProcessPlugin::new(&name, options, all.clone()));
            }
            plugins = plugins.configured(&name, all);
        }
        let some_inputs = get("ENABLED_INPUT_PLUGINS");
        let is_enabled = |name: &str| {
            some_inputs.as_ref().is_none_or(|names| names.split(',').any(|enabled| enabled.trim() == name))
        };
        let inputs = match get("INPUT_CONFIGS") {
            None => Inputs::default(),
            Some(text) => Inputs::parse(&text, is_enabled).map_err(|found| EnvironmentError::Value {
                name: "INPUT_CONFIGS",
                found,
                expected: "a JSON object of inputs, each with its plugin",
            })?,
        };
        Ok(Self { controller, plugins, inputs, database: Self::database(get)? })
    }

    /// The database that the `DB_*` variables name; none when they name nothing.
    ///
    /// # Errors
    /// When one of them has a value that it cannot have.
    pub fn database(
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<PostgresOptions>, EnvironmentError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let names = ["DB_HOST", "DB_PORT", "DB_NAME", "DB_USER", "DB_PASSWORD"];
        if names.iter().all(|name| get(name).is_none()) {
            return Ok(None);
        }
        let usual = PostgresOptions::default();
        let port = match get("DB_PORT") {
            None => usual.port,
            Some(found) => found.parse().ok().filter(|port| *port > 0).ok_or(EnvironmentError::Value {
                name: "DB_PORT",
                found,
                expected: "a port, such as 5432",
            })?,
        };
        let tls = match get("DB_SSLMODE").as_deref() {
            None | Some("disable") => Tls::Off,
            // As PostgreSQL's own clients: authorities that are named are there to be asked.
            Some("require") => match get("DB_SSLROOTCERT") {
                None => Tls::Encrypted,
                authorities => Tls::Verified(authorities.map(Into::into)),
            },
            Some("verify-full") => Tls::Verified(get("DB_SSLROOTCERT").map(Into::into)),
            Some(found) => {
                let (name, found) = ("DB_SSLMODE", found.to_owned());
                return Err(EnvironmentError::Value {
                    name,
                    found,
                    expected: "disable, require or verify-full",
                });
            }
        };
        Ok(Some(PostgresOptions {
            host: get("DB_HOST").unwrap_or(usual.host),
            port,
            name: get("DB_NAME").unwrap_or(usual.name),
            user: get("DB_USER").unwrap_or(usual.user),
            password: get("DB_PASSWORD"),
            tls,
        }))
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
        assert_eq!(names, ["github_actions", "gitlab", "http", "terraform"]);
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
    fn a_database_is_used_once_any_part_of_it_is_named() {
        assert_eq!(read(&[("DB_SSLMODE", "require")]).expect("settings").database, None);
        let named =
            read(&[("DB_HOST", "db"), ("DB_PASSWORD", "p w"), ("DB_PORT", "6000")]).expect("settings");
        let expected = PostgresOptions {
            host: "db".into(),
            port: 6000,
            password: Some("p w".into()),
            ..PostgresOptions::default()
        };
        assert_eq!(named.database, Some(expected));
        let secured = read(&[("DB_NAME", "x"), ("DB_SSLMODE", "require"), ("DB_SSLROOTCERT", "/ca.pem")]);
        let tls = secured.expect("settings").database.map(|database| database.tls);
        assert_eq!(tls, Some(Tls::Verified(Some("/ca.pem".into()))));
        let encrypted = read(&[("DB_NAME", "x"), ("DB_SSLMODE", "require")]).expect("settings").database;
        assert_eq!(encrypted.map(|database| database.tls), Some(Tls::Encrypted));
    }

    #[test]
    fn wrong_values_are_named_and_secrets_are_not_repeated() {
        for (name, value) in [
            ("RECONCILE_INTERVAL", "soon"),
            ("MAX_CONCURRENT_RECONCILES", "0"),
            ("ACTION_PRIVATE_ADDRESSES", "maybe"),
            ("DB_PORT", "many"),
            ("ACTION_CA_FILE", "/nowhere/ca.pem"),
        ] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name} is \"{value}")), "{error}");
            assert!(error.contains("\", and should be"), "{error}");
        }
        let error =
            read(&[("PLUGIN_CONFIGS", r#"{"http": "hunter22"}"#)]).expect_err("no settings").to_string();
        assert!(error.starts_with("PLUGIN_CONFIGS is"), "{error}");
    }
}
