//! EndpointSlices: the addresses behind a Service, as its pods come and go.

pub(crate) mod classic;
mod plan;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use plan::{Action, MANAGED_BY, MANAGER, SERVICE_NAME, is_ours};
use std::sync::Arc;
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, Key, Outcome, Reconciler};

/// The index of slices by the Service they belong to.
const BY_SERVICE: &str = "slices-by-service";

/// Keeps the EndpointSlices of Services.
#[derive(Debug)]
pub(crate) struct EndpointSlices;

/// The controller that runs EndpointSlices.
pub(crate) fn controller() -> Controller<EndpointSlices> {
    Controller::new("endpointslice-controller", EndpointSlices)
        .index::<EndpointSlice>(BY_SERVICE, |slice| {
            service_of(slice).map(|key| key.to_string()).into_iter().collect()
        })
        .watches::<EndpointSlice>(|slice, _| service_of(slice).into_iter().collect())
        .watches::<Pod>(selecting)
        .reads::<Node>()
        .concurrency(4)
}

/// The Service of a slice of ours.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.labels();
    let ours = labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER);
    let service = labels.get(SERVICE_NAME).filter(|_| ours)?;
    Some(Key::new(&slice.namespace().unwrap_or_default(), service))
}

/// The Services that select a pod.
fn selecting(pod: &Pod, cache: &Cache) -> Vec<Key> {
    let services = cache.view::<Service>().list_in(&pod.namespace().unwrap_or_default());
    services
        .iter()
        .filter(|service| is_ours(service) && selector(service).matches(pod.labels()))
        .map(|service| Key::of(&**service))
        .collect()
}

fn selector(service: &Service) -> Selector {
    let labels = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    labels.into_iter().collect()
}

impl Reconciler for EndpointSlices {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, cx: &Context) -> Result<Outcome, Error> {
        // Slices of a Service that goes are collected after it.
        if !is_ours(&service) || service.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let selector = selector(&service);
        let namespace = service.namespace().unwrap_or_default();
        let pods = cx.cache::<Pod>().list_where(&namespace, |header| selector.matches(&header.labels()));
        let slices = cx.cache::<EndpointSlice>().by_index(BY_SERVICE, cx.key().as_str());
        let leaving = |slice: &Arc<EndpointSlice>| slice.metadata.deletion_timestamp.is_some();
        let slices = slices.into_iter().filter(|slice| !leaving(slice)).collect();
        let nodes = cx.cache::<Node>();
        for action in plan::plan(&service, &pods, slices, |name| nodes.get(&Key::cluster(name))) {
            match action {
                Action::Create(slice) => match cx.create(&*slice).await {
                    Err(error) if crate::replicaset::is_namespace_terminating(&error) => {
                        return Ok(Outcome::Done);
                    }
                    other => drop(other?),
                },
                Action::Replace(slice) => replace(&slice, cx).await?,
                Action::Delete(slice) => cx.delete(&*slice).await?,
            }
        }
        Ok(Outcome::Done)
    }
}

/// Puts a slice in the place of the one it was made from, unless somebody changed that meanwhile.
async fn replace(slice: &EndpointSlice, cx: &Context) -> Result<(), Error> {
    let api: Api<EndpointSlice> =
        Api::namespaced(cx.client().clone(), &slice.namespace().unwrap_or_default());
    let params = PostParams { field_manager: Some(cx.field_manager().to_owned()), ..PostParams::default() };
    let written = api.replace(&slice.name_any(), &params, slice).await?;
    cx.remember(&written);
    Ok(())
}
