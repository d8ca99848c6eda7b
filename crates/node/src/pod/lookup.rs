//! Objects that a pod refers to.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{Api, PostParams};

/// Why an object cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("cannot read {kind} \"{name}\": {message}")]
    Failed { kind: &'static str, name: String, message: String },
}

/// A token of a service account.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// How long it lasts from now on.
    pub(crate) life: Duration,
}

/// Reads them; the API server in a node, a table in a test.
pub(crate) trait Lookup: Send + Sync {
    fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<ConfigMap, LookupError>> + Send;

    fn secret(&self, namespace: &str, name: &str)
    -> impl Future<Output = Result<Secret, LookupError>> + Send;

    /// A token of the pod's service account.
    fn token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: Option<i64>,
    ) -> impl Future<Output = Result<Token, LookupError>> + Send;
}

impl Lookup for kube::Client {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<ConfigMap, LookupError> {
        let api: Api<ConfigMap> = Api::namespaced(self.clone(), namespace);
        api.get(name).await.map_err(|error| explain("configmap", name, &error))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, LookupError> {
        let api: Api<Secret> = Api::namespaced(self.clone(), namespace);
        api.get(name).await.map_err(|error| explain("secret", name, &error))
    }

    async fn token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: Option<i64>,
    ) -> Result<Token, LookupError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.as_deref())
            .filter(|name| !name.is_empty())
            .unwrap_or("default");
        let api: Api<ServiceAccount> = Api::namespaced(self.clone(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_string()]),
                expiration_seconds: seconds,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_string()),
                    kind: Some("Pod".to_string()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            }),
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(|error| explain("serviceaccount token", account, &error))?;
        // The server says how long it really lasts; an hour is what it gives when nothing is asked for.
        let given = answer.spec.and_then(|spec| spec.expiration_seconds).or(seconds).unwrap_or(3600);
        let life = Duration::from_secs(u64::try_from(given).unwrap_or(0));
        Ok(Token { text: answer.status.and_then(|status| status.token).unwrap_or_default(), life })
    }
}

fn explain(kind: &'static str, name: &str, error: &kube::Error) -> LookupError {
    let name = name.to_string();
    match error {
        kube::Error::Api(status) if status.code == 404 => LookupError::NotFound { kind, name },
        kube::Error::Api(status) => LookupError::Failed { kind, name, message: status.message.clone() },
        other => LookupError::Failed { kind, name, message: other.to_string() },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::ByteString;

    use super::*;

    /// Objects of a test.
    #[derive(Default)]
    pub(crate) struct Table {
        maps: BTreeMap<String, ConfigMap>,
        secrets: BTreeMap<String, Secret>,
        /// How many tokens were asked for; every third one is refused.
        asked: AtomicUsize,
    }

    type Entries<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)])];

    impl Table {
        pub(crate) fn new(maps: Entries<'_>, secrets: Entries<'_>) -> Self {
            let map = |entries: &[(&str, &str)]| ConfigMap {
                data: Some(entries.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
                ..ConfigMap::default()
            };
            let secret = |entries: &[(&str, &str)]| Secret {
                data: Some(
                    entries.iter().map(|(k, v)| ((*k).into(), ByteString(v.as_bytes().to_vec()))).collect(),
                ),
                ..Secret::default()
            };
            Table {
                maps: maps.iter().map(|(name, data)| ((*name).into(), map(data))).collect(),
                secrets: secrets.iter().map(|(name, data)| ((*name).into(), secret(data))).collect(),
                asked: AtomicUsize::new(0),
            }
        }
    }

    impl Lookup for Table {
        async fn config_map(&self, namespace: &str, name: &str) -> Result<ConfigMap, LookupError> {
            let found = self.maps.get(&format!("{namespace}/{name}")).cloned();
            found.ok_or_else(|| LookupError::NotFound { kind: "configmap", name: name.into() })
        }

        async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, LookupError> {
            let found = self.secrets.get(&format!("{namespace}/{name}")).cloned();
            found.ok_or_else(|| LookupError::NotFound { kind: "secret", name: name.into() })
        }

        async fn token(
            &self,
            _pod: &Pod,
            audience: Option<&str>,
            seconds: Option<i64>,
        ) -> Result<Token, LookupError> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_multiple_of(3) {
                let message = "not now".into();
                return Err(LookupError::Failed { kind: "token", name: "t".into(), message });
            }
            let life = Duration::from_secs(seconds.unwrap_or(3600).unsigned_abs());
            Ok(Token { text: format!("token {number} for {}", audience.unwrap_or("the API server")), life })
        }
    }
}
