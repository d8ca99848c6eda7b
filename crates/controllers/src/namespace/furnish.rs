//! What every namespace comes with: a service account for its pods, and the certificate by which
//! they know the API server.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::sync::Arc;
use steersman::{Context, Controller, Error, Key, Outcome, Reconciler};

/// The service account of pods that name none.
const ACCOUNT: &str = "default";
/// The ConfigMap with the certificate.
const CERTIFICATE: &str = "kube-root-ca.crt";

/// Furnishes namespaces.
#[derive(Debug)]
pub(crate) struct Furnish {
    root_ca: Option<String>,
}

/// The controller that furnishes namespaces; without a certificate only with service accounts.
pub(crate) fn controller(root_ca: Option<String>) -> Controller<Furnish> {
    let publishes = root_ca.is_some();
    let controller = Controller::new("serviceaccount-controller", Furnish { root_ca })
        .shares_its_kind()
        .watches::<ServiceAccount>(|account, _| namespace_if(account, ACCOUNT))
        .concurrency(4);
    if publishes {
        controller.watches::<ConfigMap>(|map, _| namespace_if(map, CERTIFICATE))
    } else {
        controller
    }
}

fn namespace_if<K: ResourceExt>(object: &K, name: &str) -> Vec<Key> {
    let namespace = object.namespace().filter(|_| object.name_any() == name);
    namespace.map(|namespace| Key::cluster(&namespace)).into_iter().collect()
}

impl Reconciler for Furnish {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context) -> Result<Outcome, Error> {
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let name = namespace.name_any();
        let meta = |object: &str| ObjectMeta {
            name: Some(object.into()),
            namespace: Some(name.clone()),
            ..ObjectMeta::default()
        };
        if let Some(root_ca) = &self.root_ca {
            let known = cx.cache::<ConfigMap>().get(&Key::new(&name, CERTIFICATE));
            let current = known.as_ref().and_then(|map| map.data.as_ref()?.get("ca.crt"));
            if current != Some(root_ca) {
                let map = ConfigMap {
                    metadata: meta(CERTIFICATE),
                    data: Some([("ca.crt".to_owned(), root_ca.clone())].into()),
                    ..ConfigMap::default()
                };
                unless_terminating(cx.apply_unowned(&map).await)?;
            }
        }
        // Last: pods are let in as soon as it is there, and mount the certificate.
        if cx.cache::<ServiceAccount>().get(&Key::new(&name, ACCOUNT)).is_none() {
            let account = ServiceAccount { metadata: meta(ACCOUNT), ..ServiceAccount::default() };
            unless_terminating(cx.apply_unowned(&account).await)?;
        }
        Ok(Outcome::Done)
    }
}

/// A namespace that is on its way out needs no furniture.
fn unless_terminating<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Err(error) if crate::replicaset::is_namespace_terminating(&error) || error.has_code(404) => Ok(()),
        other => other.map(drop),
    }
}
