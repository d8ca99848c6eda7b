//! What a CustomResourceDefinition says of its conversion webhook.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig as AdmissionClientConfig;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::Client;
use kube::api::{Api, PostParams};

use super::WebhookError;
use crate::convert::Convert;

/// How often the definition is read again when somebody else writes it at the same moment.
const ATTEMPTS: usize = 10;

/// Where the objects of one kind are converted.
pub(super) struct Conversion {
    /// Of the definition: `webapps.example.com`.
    name: String,
    /// The versions that can be served: `v1`, `v1beta1`.
    versions: Vec<String>,
    client_config: WebhookClientConfig,
}

impl Conversion {
    /// That of a converter, which is called there.
    pub(super) fn of(converter: &dyn Convert, called: &AdmissionClientConfig) -> Self {
        let resource = converter.resource();
        let name_of = |version: &String| version.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            name: format!("{}.{}", resource.plural, resource.group),
            versions: converter.versions().iter().map(name_of).collect(),
            client_config: WebhookClientConfig {
                ca_bundle: None,
                url: called.url.clone(),
                service: called.service.as_ref().map(|service| ServiceReference {
                    name: service.name.clone(),
                    namespace: service.namespace.clone(),
                    path: service.path.clone(),
                    port: service.port,
                }),
            },
        }
    }

    /// Writes it into the definition. Without a CA the field stays with whoever wrote it.
    pub(super) async fn install(&self, client: &Client, ca: Option<&ByteString>) -> Result<(), WebhookError> {
        let failed = |error: kube::Error| WebhookError::Install {
            name: self.name.clone(),
            message: crate::Error::from(error).to_string(),
        };
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for _ in 0..ATTEMPTS {
            let found = api.get(&self.name).await.map_err(failed)?;
            let mut wanted = found.clone();
            self.write(&mut wanted, ca);
            if wanted == found {
                return Ok(());
            }
            match api.replace(&self.name, &PostParams::default(), &wanted).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let message = "somebody else keeps changing it".to_owned();
        Err(WebhookError::Install { name: self.name.clone(), message })
    }

    fn write(&self, definition: &mut CustomResourceDefinition, ca: Option<&ByteString>) {
        let before = definition.spec.conversion.take();
        let known = before.and_then(|before| before.webhook?.client_config?.ca_bundle);
        let mut client_config = self.client_config.clone();
        client_config.ca_bundle = ca.cloned().or(known);
        definition.spec.conversion = Some(CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(client_config),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        });
        for version in &mut definition.spec.versions {
            version.served |= self.versions.contains(&version.name);
        }
    }
}
