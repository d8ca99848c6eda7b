//! What the derived schema of a WebApp does not say by itself.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, ValidationRule,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;

use super::Phase;

/// A list in which every element has a name of its own, so that several writers can share it.
pub(super) fn by_name<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = <Vec<T>>::json_schema(generator);
    schema.insert("x-kubernetes-list-type".into(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".into(), json!(["name"]));
    schema
}

/// An object whose fields are somebody else's business.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The definition with its CEL rules: what can be said without a webhook.
pub(super) fn with_rules(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        add(
            root,
            "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",
            "the Service of a WebApp has its name: at most 63 lower-case letters, digits and dashes, beginning with a letter",
            None,
        );
        // A WebApp is Created from its first moment on, without anybody writing a status.
        if let Some(status) = root.properties.as_mut().and_then(|fields| fields.get_mut("status")) {
            status.default = Some(JSON(json!({"phase": Phase::Created})));
        }
        let Some(spec) = root.properties.as_mut().and_then(|fields| fields.get_mut("spec")) else { continue };
        add(
            spec,
            "(has(self.service) && has(self.service.headless) && self.service.headless) == \
             (has(oldSelf.service) && has(oldSelf.service.headless) && oldSelf.service.headless)",
            "may not be changed: create the WebApp again to give its Service an address or take it away",
            Some(".service.headless"),
        );
        add(
            spec,
            "!has(self.env) || !self.env.exists(variable, variable.name == 'PORT')",
            "PORT is set from spec.port",
            Some(".env"),
        );
        // Bounds keep the rules cheap enough for the API server to accept them.
        if let Some(env) = spec.properties.as_mut().and_then(|fields| fields.get_mut("env")) {
            env.max_items = Some(500);
        }
    }
    crd
}

fn add(schema: &mut JSONSchemaProps, rule: &str, message: &str, field: Option<&str>) {
    schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        field_path: field.map(ToOwned::to_owned),
        ..ValidationRule::default()
    });
}
