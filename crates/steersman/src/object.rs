//! What a type must offer to be cached, reconciled and applied.

use std::any::TypeId;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::core::ApiResource;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind known at compile time: every type of `k8s-openapi` and every
/// `#[derive(CustomResource)]`.
///
/// Implemented for all types that fulfil the bounds; never implement it by hand.
pub trait Object:
    Resource<DynamicType = (), Scope: 'static>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// Whether objects of this kind live in namespaces.
    fn is_namespaced() -> bool {
        TypeId::of::<Self::Scope>() == TypeId::of::<NamespaceResourceScope>()
    }

    /// Group, version, kind and plural name.
    fn api_resource() -> ApiResource {
        ApiResource::erase::<Self>(&())
    }
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: 'static>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn pods_live_in_namespaces_and_nodes_do_not() {
        assert!(Pod::is_namespaced());
        assert!(!Node::is_namespaced());
        assert_eq!(Pod::api_resource().plural, "pods");
    }
}
