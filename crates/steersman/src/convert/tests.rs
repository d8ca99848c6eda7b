use kube::CustomResource;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
struct ShopSpec {
    replicas: i32,
    image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Knows sizes instead of numbers, and no notes.
mod beta {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Shop", namespaced)]
    pub(super) struct ShopSpec {
        pub(super) large: bool,
        pub(super) picture: String,
    }
}

/// Knows only the image.
mod alpha {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1alpha1", kind = "Shop", namespaced)]
    pub(super) struct ShopSpec {
        pub(super) image: String,
    }
}

impl Spoke for beta::Shop {
    type Hub = Shop;

    fn into_hub(self) -> Result<Shop, Error> {
        if self.spec.picture.is_empty() {
            return Err(Error::terminal("a shop needs a picture"));
        }
        let replicas = if self.spec.large { 3 } else { 1 };
        Ok(Shop::new("", ShopSpec { replicas, image: self.spec.picture, note: None }))
    }

    fn from_hub(hub: Shop) -> Result<Self, Error> {
        let spec = beta::ShopSpec { large: hub.spec.replicas > 1, picture: hub.spec.image };
        Ok(beta::Shop::new("", spec))
    }
}

impl Spoke for alpha::Shop {
    type Hub = Shop;

    fn into_hub(self) -> Result<Shop, Error> {
        Ok(Shop::new("", ShopSpec { replicas: 1, image: self.spec.image, note: None }))
    }

    fn from_hub(hub: Shop) -> Result<Self, Error> {
        Ok(alpha::Shop::new("", alpha::ShopSpec { image: hub.spec.image }))
    }
}

fn converter() -> Converter<Shop> {
    Converter::new().spoke::<beta::Shop>().spoke::<alpha::Shop>()
}

fn shop(replicas: i32, image: &str, note: Option<&str>) -> Value {
    let mut spec = json!({"replicas": replicas, "image": image});
    if let Some(note) = note {
        spec["note"] = note.into();
    }
    json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "uid": "u"}, "spec": spec})
}

#[test]
fn what_a_spoke_cannot_say_comes_back() {
    let hub = shop(7, "i", Some("seven it is"));
    let beta = converter().convert(hub.clone(), "example.com/v1beta1").expect("converted");
    assert_eq!(beta["spec"], json!({"large": true, "picture": "i"}));
    assert_eq!(beta["metadata"]["uid"], "u");
    assert_eq!(converter().convert(beta, "example.com/v1").expect("converted"), hub);
}

#[test]
fn what_someone_changed_in_a_spoke_counts() {
    let hub = shop(7, "i", Some("seven it is"));
    let mut beta = converter().convert(hub, "example.com/v1beta1").expect("converted");
    beta["spec"]["large"] = false.into();
    let back = converter().convert(beta, "example.com/v1").expect("converted");
    assert_eq!(back, shop(1, "i", Some("seven it is")), "what was not touched is kept");
}

#[test]
fn a_review_is_answered_object_by_object() {
    let review = |objects: Value| {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "r-1", "desiredAPIVersion": "example.com/v1", "objects": objects}});
        converter().answer(review.to_string().as_bytes()).expect("an answer")
    };
    let beta = |picture: &str| {
        json!({"apiVersion": "example.com/v1beta1", "kind": "Shop", "metadata": {"name": "b"},
            "spec": {"large": true, "picture": picture}})
    };
    let good = review(json!([beta("i"), shop(1, "j", None)]));
    assert_eq!(good["response"]["uid"], "r-1");
    assert_eq!(good["response"]["result"]["status"], "Success");
    let images: Vec<&Value> =
        (0..2).map(|at| &good["response"]["convertedObjects"][at]["spec"]["image"]).collect();
    assert_eq!(images, ["i", "j"]);
    let bad = review(json!([beta("")]));
    assert_eq!(bad["response"]["result"], json!({"status": "Failure", "message": "a shop needs a picture"}));
    assert!(converter().answer(b"{}").is_err());
    let unknown = converter().convert(shop(1, "i", None), "example.com/v2").expect_err("no such version");
    assert_eq!(
        unknown.to_string(),
        "Shop has no version example.com/v2; there are example.com/v1 and example.com/v1alpha1, example.com/v1beta1"
    );
}

proptest! {
    #[test]
    fn every_way_through_the_spokes_leads_back(
        replicas in 0..10i32,
        image in "[a-z]{1,3}",
        note in proptest::option::of("[a-z]{0,3}"),
        way in proptest::collection::vec(0..3usize, 0..6),
    ) {
        let hub = shop(replicas, &image, note.as_deref());
        let mut object = hub.clone();
        for version in way {
            let version = ["example.com/v1", "example.com/v1beta1", "example.com/v1alpha1"][version];
            object = converter().convert(object, version).expect("converted");
            prop_assert_eq!(object["apiVersion"].as_str(), Some(version));
        }
        prop_assert_eq!(converter().convert(object, "example.com/v1").expect("converted"), hub);
    }
}
