//! The webhook configurations: what the API server asks about, where, and whom it trusts.

use std::net::SocketAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::conversion::Conversion;
use super::handler::{Handler, Sort};
use super::{CONVERT, FailurePolicy, Reach, WebhookError, WebhookOptions};
use crate::convert::Convert;

/// The configurations of a manager's webhooks, but for the CA.
pub(super) struct Configurations {
    name: String,
    mutating: Vec<MutatingWebhook>,
    validating: Vec<ValidatingWebhook>,
    conversions: Vec<Conversion>,
}

impl Configurations {
    /// Those of these handlers; nothing where somebody else writes them.
    pub(super) fn of(
        name: &str,
        handlers: &[Box<dyn Handler>],
        converters: &[Box<dyn Convert>],
        options: &WebhookOptions,
        bound: SocketAddr,
    ) -> Option<Self> {
        if matches!(options.reach, Reach::Unmanaged { .. }) {
            return None;
        }
        let convert = client_config(&options.reach, bound, CONVERT);
        let mut configurations = Self {
            name: name.to_owned(),
            mutating: Vec::new(),
            validating: Vec::new(),
            conversions: converters.iter().map(|found| Conversion::of(&**found, &convert)).collect(),
        };
        let failure_policy = Some(
            match options.failure_policy {
                FailurePolicy::Fail => "Fail",
                FailurePolicy::Ignore => "Ignore",
            }
            .to_owned(),
        );
        let timeout_seconds = i32::try_from(options.timeout.as_secs()).ok();
        for handler in handlers {
            let client_config = client_config(&options.reach, bound, &handler.path());
            let rules = Some(vec![rule(&**handler)]);
            let (side_effects, admission_review_versions) = ("None".to_owned(), vec!["v1".to_owned()]);
            match handler.sort() {
                Sort::Mutating => configurations.mutating.push(MutatingWebhook {
                    name: hook_name("default", &**handler),
                    client_config,
                    rules,
                    side_effects,
                    admission_review_versions,
                    failure_policy: failure_policy.clone(),
                    timeout_seconds,
                    ..MutatingWebhook::default()
                }),
                Sort::Validating => configurations.validating.push(ValidatingWebhook {
                    name: hook_name("validate", &**handler),
                    client_config,
                    rules,
                    side_effects,
                    admission_review_versions,
                    failure_policy: failure_policy.clone(),
                    timeout_seconds,
                    ..ValidatingWebhook::default()
                }),
            }
        }
        Some(configurations)
    }

    /// Writes them. Without a CA the field stays with whoever wrote it.
    pub(super) async fn apply(&self, client: &Client, ca: Option<&str>) -> Result<(), WebhookError> {
        let ca = ca.map(|pem| ByteString(pem.as_bytes().to_vec()));
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        if !self.mutating.is_empty() {
            let mut webhooks = self.mutating.clone();
            webhooks.iter_mut().for_each(|hook| hook.client_config.ca_bundle.clone_from(&ca));
            let object =
                MutatingWebhookConfiguration { metadata: metadata.clone(), webhooks: Some(webhooks) };
            self.write(client, &object).await?;
        }
        if !self.validating.is_empty() {
            let mut webhooks = self.validating.clone();
            webhooks.iter_mut().for_each(|hook| hook.client_config.ca_bundle.clone_from(&ca));
            let object = ValidatingWebhookConfiguration { metadata, webhooks: Some(webhooks) };
            self.write(client, &object).await?;
        }
        for conversion in &self.conversions {
            conversion.install(client, ca.as_ref()).await?;
        }
        Ok(())
    }

    async fn write<K>(&self, client: &Client, object: &K) -> Result<(), WebhookError>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(client.clone());
        let parameters = PatchParams::apply(&format!("{}-webhooks", self.name)).force();
        let written = api.patch(&self.name, &parameters, &Patch::Apply(object)).await;
        written.map(drop).map_err(|error| WebhookError::Install {
            name: self.name.clone(),
            message: crate::Error::from(error).to_string(),
        })
    }
}

/// The names and addresses under which the API server calls, for the certificate.
pub(super) fn names(reach: &Reach, bound: SocketAddr) -> Vec<String> {
    match reach {
        Reach::Direct => {
            let address = direct(bound).ip().to_string();
            if address == "127.0.0.1" { vec![address, "localhost".to_owned()] } else { vec![address] }
        }
        Reach::Url(url) => {
            let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(ToOwned::to_owned));
            vec![host.unwrap_or_default().trim_matches(['[', ']']).to_owned()]
        }
        Reach::Service { namespace, name, .. } => vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
        ],
        Reach::Unmanaged { names } => names.clone(),
    }
}

/// Where something that listens can be called from this machine.
fn direct(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], bound.port())) } else { bound }
}

fn client_config(reach: &Reach, bound: SocketAddr, path: &str) -> WebhookClientConfig {
    match reach {
        Reach::Service { namespace, name, port } => WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                path: Some(path.to_owned()),
                port: Some((*port).into()),
            }),
            ..WebhookClientConfig::default()
        },
        Reach::Url(url) => WebhookClientConfig {
            url: Some(format!("{}{path}", url.trim_end_matches('/'))),
            ..WebhookClientConfig::default()
        },
        Reach::Direct | Reach::Unmanaged { .. } => WebhookClientConfig {
            url: Some(format!("https://{}{path}", direct(bound))),
            ..WebhookClientConfig::default()
        },
    }
}

fn rule(handler: &dyn Handler) -> RuleWithOperations {
    let resource = handler.resource();
    RuleWithOperations {
        api_groups: Some(vec![resource.group]),
        api_versions: Some(vec![resource.version]),
        resources: Some(vec![resource.plural]),
        operations: Some(handler.operations().iter().map(|operation| operation.name().to_owned()).collect()),
        scope: Some(if handler.is_namespaced() { "Namespaced" } else { "Cluster" }.to_owned()),
    }
}

/// A name of at least three parts: `validate.webapps.example.com`.
fn hook_name(verb: &str, handler: &dyn Handler) -> String {
    let resource = handler.resource();
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    let name = format!("{verb}.{}.{group}", resource.plural);
    if name.split('.').count() < 3 { format!("{name}.steersman.io") } else { name }
}
