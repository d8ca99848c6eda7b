//! Where below its own place a rule's complaint is about: `.spec.name`, `.labels['a.b']`.

use crate::schema::{Schema, Shape};

/// A path of fields and keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<String>);

impl FieldPath {
    /// Reads a path; nothing where it is none.
    pub(super) fn parse(text: &str) -> Option<FieldPath> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix("['") {
                let (key, tail) = tail.split_once("']")?;
                steps.push(key.replace("\\'", "'"));
                rest = tail;
            } else {
                let tail = rest.strip_prefix('.')?;
                let end = tail.find(['.', '[']).unwrap_or(tail.len());
                let (name, tail) = tail.split_at(end);
                if name.is_empty()
                    || !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'))
                {
                    return None;
                }
                steps.push(name.to_owned());
                rest = tail;
            }
        }
        Some(FieldPath(steps))
    }

    /// Whether it leads somewhere in a schema.
    pub(super) fn exists_in(&self, schema: &Schema) -> bool {
        let Some((name, rest)) = self.0.split_first() else { return true };
        let rest = FieldPath(rest.to_vec());
        match &schema.shape {
            Shape::Struct(known) => {
                known.fields.get(name.as_str()).is_some_and(|field| rest.exists_in(&field.schema))
            }
            Shape::Map { values, .. } => rest.exists_in(values),
            _ => false,
        }
    }

    /// The path below another, at which a value of this schema is. Only keys of maps stand in brackets.
    pub(super) fn under(&self, path: &str, schema: &Schema) -> String {
        let mut whole = path.to_owned();
        let mut below = Some(schema);
        for name in &self.0 {
            let (is_key, next) = match below.map(|schema| &schema.shape) {
                Some(Shape::Map { values, .. }) => (true, Some(&**values)),
                Some(Shape::Struct(known)) => {
                    (false, known.fields.get(name.as_str()).map(|field| &*field.schema))
                }
                _ => (false, None),
            };
            if is_key {
                whole.push_str(&format!("[{name}]"));
            } else {
                if !whole.is_empty() {
                    whole.push('.');
                }
                whole.push_str(name);
            }
            below = next;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::read_root;

    #[test]
    fn paths_are_read_and_written() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "a-b": {"type": "string"},
        }}}});
        let schema = read_root(&schema).expect("a schema");
        let path = FieldPath::parse(".spec.labels['a.b']").expect("a path");
        assert!(path.exists_in(&schema));
        assert_eq!(path.under("", &schema), "spec.labels[a.b]");
        assert_eq!(path.under("x", &schema), "x.spec.labels[a.b]");
        let path = FieldPath::parse(".spec['a-b']").expect("a path");
        assert_eq!(path.under("", &schema), "spec.a-b");
        assert!(!FieldPath::parse(".spec.nope").expect("a path").exists_in(&schema));
        for bad in ["spec", ".", ".a..b", ".a[0]", ".a['x"] {
            assert_eq!(FieldPath::parse(bad), None, "{bad}");
        }
    }
}
