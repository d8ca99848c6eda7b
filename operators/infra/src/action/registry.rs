//! The plugins that an operator has, and their settings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Action, Description};
use crate::types::{Resource, ResourceType};

/// Action plugins by name, each with the operator's settings for it.
#[derive(Clone, Default)]
pub struct Registry {
    plugins: BTreeMap<String, Arc<dyn Action>>,
    settings: BTreeMap<String, Map<String, Value>>,
}

impl Registry {
    /// No plugins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plugin; a later one of the same name takes the place of the earlier.
    #[must_use]
    pub fn with(mut self, action: impl Action) -> Self {
        self.plugins.insert(action.describe().name, Arc::new(action));
        self
    }

    /// Sets the operator's settings for a plugin, which types and resources may refine.
    #[must_use]
    pub fn configured(mut self, plugin: &str, settings: Map<String, Value>) -> Self {
        self.settings.insert(plugin.to_owned(), settings);
        self
    }

    /// The plugin of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Action>> {
        self.plugins.get(name).cloned()
    }

    /// All plugins.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Action>> {
        self.plugins.values()
    }

    /// What plugins there are, by name.
    pub fn describe(&self) -> Vec<Description> {
        self.plugins.values().map(|plugin| plugin.describe()).collect()
    }

    /// What is said about a plugin that is not there.
    pub fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.plugins.keys().map(String::as_str).collect();
        format!("Unknown action plugin: {name}. Available plugins: {}", names.join(", "))
    }

    /// The configuration of a resource's plugin: the operator's settings, refined by the type's
    /// `metadata.action_defaults.<plugin>`, refined by the resource's own.
    ///
    /// Whoever sends requests elsewhere must bring the credentials: those that were meant for
    /// one address are not sent to another.
    pub fn config(&self, resource: &Resource, r#type: Option<&ResourceType>) -> Map<String, Value> {
        let plugin = &resource.spec.action_plugin;
        let mut config = self.settings.get(plugin).cloned().unwrap_or_default();
        let defaults = r#type
            .and_then(|known| known.spec.metadata.get("action_defaults")?.get(plugin)?.as_object().cloned());
        for layer in [defaults.unwrap_or_default(), resource.spec.plugin_config.clone()] {
            let elsewhere =
                ADDRESSES.iter().any(|name| layer.get(*name).is_some_and(|to| config.get(*name) != Some(to)));
            if elsewhere {
                config.retain(|name, _| !CREDENTIALS.contains(&name.as_str()));
            }
            config.extend(layer);
        }
        config
    }
}

/// Settings that say where requests go.
const ADDRESSES: [&str; 2] = ["base_url", "api_url"];
/// Settings that may hold secrets for there.
const CREDENTIALS: [&str; 3] = ["headers", "token", "trigger_token"];

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.plugins.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn credentials_do_not_follow_requests_to_another_address() {
        let registry = Registry::new().configured(
            "http",
            object(&json!({"base_url": "https://a", "headers": {"x": "secret"}, "n": 1})),
        );
        let mut resource = Resource::default();
        resource.spec.action_plugin = "http".into();
        assert_eq!(registry.config(&resource, None)["headers"], json!({"x": "secret"}));
        resource.spec.plugin_config = object(&json!({"base_url": "https://a", "n": 2}));
        assert_eq!(
            Value::Object(registry.config(&resource, None)),
            json!({"base_url": "https://a", "headers": {"x": "secret"}, "n": 2})
        );
        resource.spec.plugin_config = object(&json!({"base_url": "https://evil"}));
        assert_eq!(
            Value::Object(registry.config(&resource, None)),
            json!({"base_url": "https://evil", "n": 1})
        );
    }
}
