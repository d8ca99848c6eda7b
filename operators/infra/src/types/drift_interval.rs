//! How often resources are checked for drift, where a type or a resource says so itself.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Resource, ResourceType};

/// The field in the metadata of a type or of a resource.
const FIELD: &str = "drift_interval_seconds";

/// How often a ready resource is checked for drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftInterval {
    /// Once in this time.
    Every(Duration),
    /// Never.
    Never,
}

impl DriftInterval {
    /// What metadata say in `drift_interval_seconds`, if anything: a number of seconds from 1 on,
    /// or 0 for never.
    ///
    /// # Errors
    /// With what is wrong about it.
    pub fn read(metadata: &Map<String, Value>) -> Result<Option<Self>, String> {
        let Some(found) = metadata.get(FIELD).filter(|found| !found.is_null()) else {
            return Ok(None);
        };
        match found.as_f64() {
            Some(0.0) => Ok(Some(Self::Never)),
            Some(seconds) if seconds >= 1.0 && seconds.is_finite() => Duration::try_from_secs_f64(seconds)
                .map(|interval| Some(Self::Every(interval)))
                .map_err(|_| wrong(found)),
            _ => Err(wrong(found)),
        }
    }

    /// What counts for a resource: its own wish, else its type's, else the usual. A wish that is
    /// none is refused when it is written, and does not count where it was written past that.
    pub fn of(resource: &Resource, r#type: Option<&ResourceType>, usual: Duration) -> Self {
        let said = |metadata: &Map<String, Value>| Self::read(metadata).ok().flatten();
        said(&resource.spec.metadata).or_else(|| said(&r#type?.spec.metadata)).unwrap_or(Self::Every(usual))
    }
}

fn wrong(found: &Value) -> String {
    format!("{FIELD} is {found}, and should be a number of seconds from 1 on, or 0 for never")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata(value: Value) -> Map<String, Value> {
        Map::from_iter([(FIELD.to_owned(), value)])
    }

    #[test]
    fn the_resource_goes_before_its_type_and_that_before_the_usual() {
        let usual = Duration::from_secs(300);
        let (mut resource, mut kind) = (Resource::default(), ResourceType::default());
        let every = |seconds| DriftInterval::Every(Duration::from_secs(seconds));
        assert_eq!(DriftInterval::of(&resource, Some(&kind), usual), every(300));
        kind.spec.metadata = metadata(json!(20));
        assert_eq!(DriftInterval::of(&resource, Some(&kind), usual), every(20));
        assert_eq!(DriftInterval::of(&resource, None, usual), every(300));
        resource.spec.metadata = metadata(json!(0));
        assert_eq!(DriftInterval::of(&resource, Some(&kind), usual), DriftInterval::Never);
        resource.spec.metadata = metadata(json!("often"));
        assert_eq!(DriftInterval::of(&resource, Some(&kind), usual), every(20));
    }

    #[test]
    fn what_is_no_interval_is_explained() {
        assert_eq!(DriftInterval::read(&Map::new()), Ok(None));
        assert_eq!(DriftInterval::read(&metadata(Value::Null)), Ok(None));
        for bad in [json!("60"), json!(-1), json!(0.5), json!(1e300), json!([60])] {
            let error = DriftInterval::read(&metadata(bad.clone())).expect_err("no interval");
            assert!(error.starts_with(&format!("drift_interval_seconds is {bad}, and should be")), "{error}");
        }
    }
}
