//! WebApp as it was first written: `example.com/v1beta1`.
//!
//! Image and tag apart, a size instead of replicas, the address in a place of its own, and plain environment
//! variables by name. What it cannot say of a WebApp is kept in an annotation while somebody looks at it in
//! this version.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steersman::Error;
use steersman::convert::Spoke;

use super::{Phase, ServiceSettings, ServiceType};

/// What a web application should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1beta1",
    kind = "WebApp",
    plural = "webapps",
    singular = "webapp",
    shortname = "wa",
    category = "all",
    namespaced,
    status = "WebAppStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A web application: a number of replicas of an image behind one address.",
    scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"),
    printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image.repository"}"#,
    printcolumn = r#"{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct WebAppSpec {
    /// The image to run.
    pub image: Image,
    /// How many replicas to run.
    #[serde(default = "super::one")]
    #[schemars(range(min = 0))]
    pub size: i32,
    /// How the application is reached.
    #[serde(default)]
    pub expose: Expose,
    /// Environment variables by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What to run instead of the image's own program, and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// An image in its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Where it is: `registry.example.com/shop`.
    #[schemars(length(min = 1))]
    pub repository: String,
    /// Which version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Which one exactly: `sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// How an application is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expose {
    /// The port on which the application serves.
    #[serde(default = "super::http")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// From where: ClusterIP, NodePort or LoadBalancer.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceType>,
}

impl Default for Expose {
    fn default() -> Self {
        Self { port: super::http(), kind: None }
    }
}

/// How a web application is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebAppStatus {
    /// Replicas there are.
    #[serde(default)]
    pub size: i32,
    /// Replicas that are ready to serve.
    #[serde(default)]
    pub ready: i32,
    /// Where the application is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

impl Image {
    /// From one text: `registry:5000/shop:1.2@sha256:…`.
    fn read(text: &str) -> Self {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (text, None),
        };
        // A colon before the last slash belongs to the registry's port.
        let at = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match rest[at..].split_once(':') {
            Some((name, tag)) => (&rest[..at + name.len()], Some(tag.to_owned())),
            None => (rest, None),
        };
        Self { repository: repository.to_owned(), tag, digest }
    }

    /// As one text, unless that would be read as another image.
    fn write(&self) -> Result<String, Error> {
        let part = |sign: char, text: &Option<String>| {
            text.as_ref().map(|text| format!("{sign}{text}")).unwrap_or_default()
        };
        let text = format!("{}{}{}", self.repository, part(':', &self.tag), part('@', &self.digest));
        if Self::read(&text) == *self {
            return Ok(text);
        }
        let why = "spec.image: repository, tag and digest must not hold each other's signs";
        Err(Error::terminal(format!("{why}: {text:?} is another image")))
    }
}

impl Spoke for WebApp {
    type Hub = super::WebApp;

    fn into_hub(self) -> Result<super::WebApp, Error> {
        let Self { metadata, spec, status } = self;
        let env = spec.env.into_iter();
        let status = status.map(|status| super::WebAppStatus {
            replicas: status.size,
            available_replicas: status.ready,
            phase: status.phase,
            ..super::WebAppStatus::default()
        });
        let spec = super::WebAppSpec {
            image: spec.image.write()?,
            replicas: spec.size,
            port: spec.expose.port,
            command: spec.command,
            env: env.map(|(name, value)| EnvVar { name, value: Some(value), value_from: None }).collect(),
            service: spec
                .expose
                .kind
                .map(|kind| ServiceSettings { kind: Some(kind), ..ServiceSettings::default() }),
            ..super::WebAppSpec::default()
        };
        Ok(super::WebApp { metadata, spec, status })
    }

    fn from_hub(hub: super::WebApp) -> Result<Self, Error> {
        let super::WebApp { metadata, spec, status } = hub;
        let env = spec.env.into_iter().filter_map(|variable| Some((variable.name, variable.value?)));
        let status = status.map(|status| WebAppStatus {
            size: status.replicas,
            ready: status.available_replicas,
            phase: status.phase,
        });
        let spec = WebAppSpec {
            image: Image::read(&spec.image),
            size: spec.replicas,
            expose: Expose { port: spec.port, kind: spec.service.and_then(|service| service.kind) },
            env: env.collect(),
            command: spec.command,
        };
        Ok(Self { metadata, spec, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_test::check_conversion;

    #[test]
    fn images_are_taken_apart_and_put_together() {
        for (text, repository, tag, digest) in [
            ("nginx:1.25", "nginx", Some("1.25"), None),
            ("registry:5000/shop", "registry:5000/shop", None, None),
            ("registry:5000/shop:2@sha256:00", "registry:5000/shop", Some("2"), Some("sha256:00")),
        ] {
            let image = Image::read(text);
            let expected = (repository, tag, digest);
            assert_eq!((image.repository.as_str(), image.tag.as_deref(), image.digest.as_deref()), expected);
            assert_eq!(image.write().ok().as_deref(), Some(text));
        }
        let odd = Image { repository: "nginx:1".to_owned(), tag: Some("2".to_owned()), digest: None };
        assert!(odd.write().is_err(), "this would be nginx with the tag 1:2");
    }

    #[test]
    fn every_webapp_survives_the_way_through_every_version() {
        check_conversion(&crate::types::converter(), &crate::crd());
    }
}
