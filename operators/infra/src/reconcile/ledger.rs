//! Writing a resource's status by compare-and-swap.

use kube::api::{Api, Patch, PatchParams};
use kube::core::request::Request;
use kube::{Resource as _, ResourceExt};
use serde_json::json;
use steersman::{Context, Error};

use crate::types::{Resource, ResourceStatus};

/// How often a write that met a conflict is repeated.
const ATTEMPTS: usize = 8;

/// What to do when the resource has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnChange {
    /// Write nothing, and decide anew.
    Yield,
    /// Write all the same, as long as the attempt is still ours.
    Insist,
}

/// How a write went.
pub(super) enum Written {
    /// The status is as it should be; this is the resource now.
    Yes(Box<Resource>),
    /// The resource has changed, or another acts on it; nothing was written.
    Changed,
}

/// Writes the status, provided that the resource is as it was read. A write whose answer was
/// lost is recognised.
pub(super) async fn write(
    cx: &Context,
    resource: &Resource,
    status: &ResourceStatus,
    on_change: OnChange,
) -> Result<Written, Error> {
    let namespace = resource.namespace().unwrap_or_default();
    let name = resource.name_any();
    let api: Api<Resource> = Api::namespaced(cx.client().clone(), &namespace);
    let attempt = |of: &Resource| of.status.as_ref()?.attempt.as_ref().map(|attempt| attempt.id.clone());
    let expected = attempt(resource);
    let mut version = resource.resource_version();
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let body = json!({
            "apiVersion": Resource::api_version(&()),
            "kind": Resource::kind(&()),
            "metadata": {"name": name, "namespace": namespace, "uid": resource.uid(), "resourceVersion": version},
            "status": status,
        });
        let params = PatchParams::apply(cx.field_manager()).force();
        let path = Resource::url_path(&(), Some(&namespace));
        let request = Request::new(path).patch_subresource("status", &name, &params, &Patch::Apply(&body))?;
        match cx.client().request::<Resource>(request).await {
            Ok(written) => {
                cx.remember(&written);
                return Ok(Written::Yes(Box::new(written)));
            }
            Err(error) => last = Some(error),
        }
        // A conflict, or an answer that was lost: look what is there.
        let Ok(current) = api.get(&name).await else {
            break;
        };
        cx.remember(&current);
        if current.uid() != resource.uid() {
            return Ok(Written::Changed);
        }
        if current.status.as_ref() == Some(status) {
            return Ok(Written::Yes(Box::new(current)));
        }
        let conflict = matches!(&last, Some(kube::Error::Api(answer)) if answer.code == 409);
        let moved = current.resource_version() != version;
        if attempt(&current) != expected || (conflict && moved && on_change == OnChange::Yield) {
            return Ok(Written::Changed);
        }
        // Refused although nothing has changed: repeating it at once would not help.
        if !moved
            && matches!(&last, Some(kube::Error::Api(answer)) if answer.code < 500 && answer.code != 409)
        {
            break;
        }
        version = current.resource_version();
    }
    match last {
        Some(error) => {
            Err(Error::from(error).context(format!("writing the status of Resource {namespace}/{name}")))
        }
        None => Ok(Written::Changed),
    }
}
