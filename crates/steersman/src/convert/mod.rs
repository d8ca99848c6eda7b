//! Objects of a kind in all of its versions.
//!
//! One version is the hub: the one in which the operator thinks. Every other one is a spoke
//! that says how it becomes the hub and comes from it; two spokes meet at the hub.
//!
//! ```text
//!   v1alpha1 ──into_hub──▶        ──from_hub──▶ v1beta1
//!            ◀──from_hub── v1 ◀──into_hub──
//! ```
//!
//! What a spoke cannot say is not lost: it travels in the annotation
//! `conversion.steersman.io/hub` and comes back with the next conversion to the hub. So every
//! object of the hub is the same after a way through any spoke, whatever its converter forgot.
//!
//! [`Webhooks::converter`](crate::webhook::Webhooks::converter) serves a converter to the API server and writes
//! into the definition where it is; [`migrate`] rewrites what is stored in an old version.

mod migrate;
pub(crate) mod review;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use kube::core::ApiResource;
use serde_json::{Map, Value, json};

pub use self::migrate::{Migration, migrate};

use crate::error::Error;
use crate::object::Object;

/// Where what a spoke cannot say is kept.
const REST: &str = "conversion.steersman.io/hub";

/// A version of a kind that is not the hub.
///
/// # Example
/// ```
/// # use kube::CustomResource;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// use steersman::Error;
/// use steersman::convert::{Converter, Spoke};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// pub struct ShopSpec { pub replicas: i32, pub image: String }
///
/// mod v1beta1 {
/// #   use kube::CustomResource;
/// #   use schemars::JsonSchema;
/// #   use serde::{Deserialize, Serialize};
///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v1beta1", kind = "Shop", namespaced)]
///     pub struct ShopSpec { pub size: String, pub image: String }
/// }
///
/// impl Spoke for v1beta1::Shop {
///     type Hub = Shop;
///     fn into_hub(self) -> Result<Shop, Error> {
///         let replicas = match self.spec.size.as_str() { "small" => 1, _ => 3 };
///         Ok(Shop { metadata: self.metadata, spec: ShopSpec { replicas, image: self.spec.image } })
///     }
///     fn from_hub(hub: Shop) -> Result<Self, Error> {
///         let size = if hub.spec.replicas > 1 { "large" } else { "small" };
///         let spec = v1beta1::ShopSpec { size: size.to_owned(), image: hub.spec.image };
///         Ok(Self { metadata: hub.metadata, spec })
///     }
/// }
///
/// let converter = Converter::<Shop>::new().spoke::<v1beta1::Shop>();
/// # let shop = serde_json::json!({"apiVersion": "example.com/v1", "kind": "Shop",
/// #     "metadata": {"name": "a"}, "spec": {"replicas": 7, "image": "i"}});
/// // Seven replicas are "large", and seven again on the way back.
/// let beta = converter.convert(shop.clone(), "example.com/v1beta1")?;
/// assert_eq!(beta["spec"]["size"], "large");
/// assert_eq!(converter.convert(beta, "example.com/v1")?, shop);
/// # Ok::<(), Error>(())
/// ```
pub trait Spoke: Object {
    /// The version in the middle.
    type Hub: Object;

    /// The same object as the hub.
    ///
    /// # Errors
    /// When the object makes no sense; the server then refuses the request with these words.
    fn into_hub(self) -> Result<Self::Hub, Error>;

    /// The object of the hub, as this version says it.
    ///
    /// # Errors
    /// When it cannot be said at all.
    fn from_hub(hub: Self::Hub) -> Result<Self, Error>;
}

/// Converts between all versions of one kind.
pub struct Converter<H> {
    spokes: BTreeMap<String, Box<dyn Arm<H>>>,
}

impl<H: Object> Converter<H> {
    /// Knows the hub alone.
    pub fn new() -> Self {
        Self { spokes: BTreeMap::new() }
    }

    /// Adds a version.
    #[must_use]
    pub fn spoke<S: Spoke<Hub = H>>(mut self) -> Self {
        self.spokes.insert(S::api_version(&()).into_owned(), Box::new(SpokeArm::<S>(PhantomData)));
        self
    }

    /// An object in another version, such as `example.com/v1beta1`.
    ///
    /// # Errors
    /// When the object or the version is unknown, or a converter refuses.
    pub fn convert(&self, object: Value, to: &str) -> Result<Value, Error> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        if from == to {
            return Ok(object);
        }
        let hub = match self.arm(&from)? {
            None => object,
            Some(arm) => restore(arm.hub_of(&object)?, &object)?,
        };
        match self.arm(to)? {
            None => Ok(hub),
            Some(arm) => {
                let mut spoke = arm.spoke_of(&hub)?;
                let back = arm.hub_of(&spoke)?;
                preserve(&mut spoke, &back, &hub);
                Ok(spoke)
            }
        }
    }

    /// Answers a `ConversionReview`, as an API server posts it.
    ///
    /// # Errors
    /// When the body is none. What cannot be converted is told in the answer.
    pub fn answer(&self, body: &[u8]) -> Result<Value, Error> {
        review::answer(body, |object, to| self.convert(object, to))
    }

    /// Every version of the kind, such as `example.com/v1beta1`, the hub first.
    pub fn versions(&self) -> Vec<String> {
        std::iter::once(H::api_version(&()).into_owned()).chain(self.spokes.keys().cloned()).collect()
    }

    /// The way of a version to the hub; none for the hub itself.
    fn arm(&self, version: &str) -> Result<Option<&dyn Arm<H>>, Error> {
        if version == H::api_version(&()) {
            return Ok(None);
        }
        let arm = self.spokes.get(version).ok_or_else(|| {
            let known: Vec<&str> = self.spokes.keys().map(String::as_str).collect();
            Error::terminal(format!(
                "{} has no version {version}; there are {} and {}",
                H::kind(&()),
                H::api_version(&()),
                known.join(", ")
            ))
        })?;
        Ok(Some(&**arm))
    }
}

impl<H: Object> Default for Converter<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> fmt::Debug for Converter<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Converter").field(&self.spokes.keys().collect::<Vec<_>>()).finish()
    }
}

/// A converter whose kind does not matter any more.
pub(crate) trait Convert: Send + Sync {
    /// The hub.
    fn resource(&self) -> ApiResource;
    /// Every version, the hub first.
    fn versions(&self) -> Vec<String>;
    /// An object in another version.
    fn convert(&self, object: Value, to: &str) -> Result<Value, Error>;
}

impl<H: Object> Convert for Converter<H> {
    fn resource(&self) -> ApiResource {
        H::api_resource()
    }

    fn versions(&self) -> Vec<String> {
        Converter::versions(self)
    }

    fn convert(&self, object: Value, to: &str) -> Result<Value, Error> {
        Converter::convert(self, object, to)
    }
}

/// A spoke whose type does not matter any more.
trait Arm<H>: Send + Sync {
    fn hub_of(&self, spoke: &Value) -> Result<Value, Error>;
    fn spoke_of(&self, hub: &Value) -> Result<Value, Error>;
}

struct SpokeArm<S>(PhantomData<fn() -> S>);

impl<S: Spoke> Arm<S::Hub> for SpokeArm<S> {
    fn hub_of(&self, spoke: &Value) -> Result<Value, Error> {
        let typed: S = serde_json::from_value(spoke.clone())?;
        encode(&typed.into_hub()?, spoke)
    }

    fn spoke_of(&self, hub: &Value) -> Result<Value, Error> {
        let typed: S::Hub = serde_json::from_value(hub.clone())?;
        encode(&S::from_hub(typed)?, hub)
    }
}

/// The object as JSON, with the metadata of the one it was: a converter has no say in them.
fn encode<K: Object>(object: &K, origin: &Value) -> Result<Value, Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    value["metadata"] = origin["metadata"].clone();
    Ok(value)
}

/// Notes in the spoke what of the hub would be lost on the way back.
fn preserve(spoke: &mut Value, back: &Value, hub: &Value) {
    let lost = difference(&without_metadata(back), &without_metadata(hub));
    if lost.as_object().is_none_or(Map::is_empty) {
        return;
    }
    // What the spoke said then, to see whether someone has changed it since.
    let kept = json!({"then": without_metadata(back), "lost": lost});
    let annotations = &mut spoke["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[REST] = kept.to_string().into();
}

/// Brings back what the spoke could not say, where nobody has changed what it did say.
fn restore(mut hub: Value, spoke: &Value) -> Result<Value, Error> {
    let Some(kept) = spoke["metadata"]["annotations"].get(REST).and_then(Value::as_str) else {
        return Ok(hub);
    };
    let kept: Value = serde_json::from_str(kept).map_err(|error| {
        Error::from(error).context(format!("the annotation {REST} was changed by hand; remove it"))
    })?;
    let changed = difference(&kept["then"], &without_metadata(&hub));
    apply(&mut hub, &kept["lost"]);
    apply(&mut hub, &changed);
    if let Some(meta) = hub["metadata"].as_object_mut()
        && let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(REST);
        if annotations.is_empty() {
            meta.remove("annotations");
        }
    }
    Ok(hub)
}

fn without_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        for field in ["apiVersion", "kind", "metadata"] {
            fields.remove(field);
        }
    }
    object
}

/// The merge patch that makes `to` of `from`.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match from.get(name) {
            Some(known) if known == value => {}
            Some(known) if known.is_object() && value.is_object() => {
                patch.insert(name.clone(), difference(known, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Applies a merge patch.
fn apply(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Some(fields) = value.as_object_mut() else { return };
    for (name, part) in patch {
        match part {
            Value::Null => drop(fields.remove(name)),
            part => apply(fields.entry(name.clone()).or_insert(Value::Null), part),
        }
    }
}

#[cfg(test)]
mod tests;
