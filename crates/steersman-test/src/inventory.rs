//! Everything that is in a cluster, to see what an operator left behind.

use std::collections::BTreeSet;

use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use kube::discovery::{Discovery, verbs};

use crate::cluster::Cluster;

/// Kinds that come and go by themselves.
const IGNORED: [&str; 2] = ["Event", "Lease"];

/// The objects of a cluster at one moment, of all kinds but Events and Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeSet<String>);

impl Inventory {
    /// What is here and was not there, as `Kind namespace/name`.
    pub fn since(&self, earlier: &Inventory) -> Vec<String> {
        self.0
            .difference(&earlier.0)
            .map(|line| line.rsplit_once(' ').map_or(line.as_str(), |it| it.0))
            .map(str::to_owned)
            .collect()
    }
}

impl Cluster {
    /// Everything that is in the cluster now.
    ///
    /// # Panics
    /// When the server does not list it.
    pub async fn inventory(&self) -> Inventory {
        let discovery = match Discovery::new(self.client()).run().await {
            Ok(discovery) => discovery,
            Err(error) => panic!("cannot find out what the server serves: {error}"),
        };
        let mut found = BTreeSet::new();
        for (resource, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
            if !capabilities.supports_operation(verbs::LIST) || IGNORED.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(self.client(), &resource);
            let objects = match api.list_metadata(&ListParams::default()).await {
                Ok(objects) => objects,
                Err(error) => panic!("cannot list {}: {error}", resource.plural),
            };
            for object in objects {
                let meta = object.metadata;
                let key = steersman::Key::new(
                    meta.namespace.as_deref().unwrap_or_default(),
                    meta.name.as_deref().unwrap_or_default(),
                );
                let uid = meta.uid.unwrap_or_default();
                found.insert(format!("{} {key} {uid}", resource.kind));
            }
        }
        Inventory(found)
    }

    /// Checks that nothing is in the cluster that was not there at an earlier time.
    ///
    /// # Panics
    /// When there is; the message names it.
    pub async fn assert_nothing_left(&self, earlier: &Inventory) {
        let left = self.inventory().await.since(earlier);
        assert!(left.is_empty(), "left behind: {}", left.join(", "));
    }
}
