//! Somebody else owns what one tries to apply.

use std::fmt;

use super::{
    managed::ManagerId,
    path::Element,
    set::{FieldSet, path_text},
};

/// One field that somebody else owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its owner.
    pub manager: ManagerId,
    /// Where it is.
    pub path: Vec<Element>,
}

impl Conflict {
    /// The path as clients show it: `.spec.replicas`.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }

    /// The message of the cause in a Status: `conflict with "kubectl" using apps/v1`.
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// All fields that somebody else owns, sorted by owner. Displays as clients show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// The paths in conflict.
    pub(super) fn paths(&self) -> FieldSet {
        let mut set = FieldSet::default();
        for conflict in &self.0 {
            set.insert(&conflict.path);
        }
        set
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.cause(), only.field());
        }
        let mut lines = Vec::new();
        let mut last = None;
        for conflict in &self.0 {
            if last != Some(&conflict.manager) {
                lines.push(format!("conflicts with {}:", conflict.manager));
                last = Some(&conflict.manager);
            }
            lines.push(format!("- {}", conflict.field()));
        }
        write!(f, "Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_read_as_kubectl_shows_them() {
        let conflict = |manager: ManagerId, field: &str| Conflict {
            manager,
            path: vec![Element::field("spec"), Element::field(field)],
        };
        let kubectl = ManagerId::updater("kubectl", "apps/v1", "");
        let one = Conflicts(vec![conflict(kubectl, "replicas")]);
        assert_eq!(
            one.to_string(),
            r#"Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas"#
        );
        let three = Conflicts(vec![
            conflict(ManagerId::applier("a", ""), "paused"),
            conflict(ManagerId::applier("a", ""), "replicas"),
            conflict(ManagerId::updater("hpa", "apps/v1", "scale"), "replicas"),
        ]);
        assert_eq!(
            three.to_string(),
            "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.paused\n- .spec.replicas\n\
             conflicts with \"hpa\" with subresource \"scale\" using apps/v1:\n- .spec.replicas"
        );
        assert_eq!(three.0[2].cause(), r#"conflict with "hpa" with subresource "scale" using apps/v1"#);
    }
}
