//! Garbage collection as a property: what is left is what a few lines of model say.

use crate::cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Objects by number; each names owners among those before it, and may be deleted by hand.
#[derive(Clone, Debug)]
struct Family {
    owners: Vec<BTreeSet<usize>>,
    deleted: Vec<(usize, PropagationPolicy)>,
}

fn family() -> impl Strategy<Value = Family> {
    let owners = prop::collection::vec(prop::collection::btree_set(0..64_usize, 0..3), 1..14);
    let policy = prop_oneof![Just(PropagationPolicy::Background), Just(PropagationPolicy::Foreground)];
    let deleted = prop::collection::vec((0..64_usize, policy), 0..4);
    (owners, deleted).prop_map(|(owners, deleted)| {
        let count = owners.len();
        let owners = owners.into_iter().enumerate();
        Family {
            // Owners come before what they own, so there are no cycles.
            owners: owners
                .map(|(at, set)| set.into_iter().filter(|_| at > 0).map(|n| n % at.max(1)).collect())
                .collect(),
            deleted: deleted.into_iter().map(|(number, policy)| (number % count, policy)).collect(),
        }
    })
}

/// Who is left, and which owners each of them still names.
fn model(family: &Family) -> BTreeMap<String, BTreeSet<String>> {
    let mut gone: BTreeSet<usize> = family.deleted.iter().map(|(number, _)| *number).collect();
    for (number, owners) in family.owners.iter().enumerate() {
        if !owners.is_empty() && owners.is_subset(&gone) {
            gone.insert(number);
        }
    }
    let left = family.owners.iter().enumerate().filter(|(number, _)| !gone.contains(number));
    left.map(|(number, owners)| {
        let owners = owners.difference(&gone).map(|owner| format!("c{owner}")).collect();
        (format!("c{number}"), owners)
    })
    .collect()
}

async fn play(family: &Family) -> BTreeMap<String, BTreeSet<String>> {
    let (cluster, _running) = cluster().await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let mut uids = Vec::new();
    for (number, owners) in family.owners.iter().enumerate() {
        let references: Vec<_> = owners
            .iter()
            .map(|owner| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("c{owner}"),
                "uid": uids[*owner], "blockOwnerDeletion": true})
            })
            .collect();
        let object = json!({"metadata": {"name": format!("c{number}"), "ownerReferences": references}});
        uids.push(cluster.create_json::<ConfigMap>(object).await.uid().unwrap_or_default());
    }
    for (number, policy) in &family.deleted {
        let params = DeleteParams { propagation_policy: Some(policy.clone()), ..DeleteParams::default() };
        // It may be gone already, with its owner.
        let _ = api.delete(&format!("c{number}"), &params).await;
    }
    cluster.pass(Duration::from_secs(60)).await;
    let left = api.list(&Default::default()).await.expect("a list").items;
    left.into_iter()
        .filter(|object| object.name_any().starts_with('c'))
        .map(|object| {
            let owners = object.owner_references().iter().map(|owner| owner.name.clone()).collect();
            (object.name_any(), owners)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_after_deletions_is_what_still_has_an_owner(family in family()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let left = runtime.block_on(play(&family));
        prop_assert_eq!(left, model(&family));
    }
}
