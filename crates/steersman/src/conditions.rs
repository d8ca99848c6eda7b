//! The conditions of a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be said.
    Unknown,
}

impl ConditionStatus {
    /// As it stands in an object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        match holds {
            true => Self::True,
            false => Self::False,
        }
    }
}

/// What a condition says now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation<'a> {
    /// Its type, such as `Available`.
    pub r#type: &'a str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word in CamelCase for programs.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: String,
    /// The generation of the object that was looked at.
    pub generation: Option<i64>,
}

/// Puts an observation into a list of conditions. The time of the transition moves only when
/// the status does, so that saying the same again changes nothing.
///
/// # Example
/// ```
/// use steersman::conditions::{set, ConditionStatus, Observation};
///
/// let mut conditions = Vec::new();
/// set(&mut conditions, jiff::Timestamp::UNIX_EPOCH, Observation {
///     r#type: "Available",
///     status: ConditionStatus::True,
///     reason: "MinimumReplicasAvailable",
///     message: "3 of 3 replicas are available".into(),
///     generation: Some(1),
/// });
/// assert_eq!(conditions[0].status, "True");
/// ```
pub fn set(conditions: &mut Vec<Condition>, now: Timestamp, observation: Observation<'_>) {
    let mut condition = Condition {
        type_: observation.r#type.to_owned(),
        status: observation.status.as_str().to_owned(),
        reason: observation.reason.to_owned(),
        message: observation.message,
        observed_generation: observation.generation,
        last_transition_time: Time(now),
    };
    let known = conditions.iter_mut().find(|known| known.type_ == condition.type_);
    match known {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == r#type)
}

/// Whether the condition of this type is there and holds.
pub fn is_true(conditions: &[Condition], r#type: &str) -> bool {
    find(conditions, r#type).is_some_and(|condition| condition.status == "True")
}

/// The schema of a list of conditions: a map by type, so that several writers can share it.
///
/// For `#[schemars(schema_with = "steersman::conditions::schema")]` on the field of a status.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = <Vec<Condition>>::json_schema(generator);
    schema.insert("x-kubernetes-list-type".into(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".into(), serde_json::json!(["type"]));
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(status: bool, message: &str) -> Observation<'static> {
        Observation {
            r#type: "Available",
            status: status.into(),
            reason: "Because",
            message: message.to_owned(),
            generation: Some(2),
        }
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut conditions = Vec::new();
        set(&mut conditions, at(1), observe(true, "one"));
        set(&mut conditions, at(2), observe(true, "two"));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert_eq!(conditions[0].message, "two");
        assert!(is_true(&conditions, "Available"));
        set(&mut conditions, at(3), observe(false, "three"));
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
        assert!(!is_true(&conditions, "Available"));
    }
}
