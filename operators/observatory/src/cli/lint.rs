//! What is wrong with a file of workflows, without a cluster.

use std::fmt;

use serde_json::Value;
use serde_saphyr::Location;

use super::tree::{Node, Tree};
use crate::dag::{Place, Problem, check};
use crate::types::{GROUP, Observatory, crd};

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, from 1; 0 when it is not known.
    pub line: u64,
    /// The column, from 1; 0 when it is not known.
    pub column: u64,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    fn at(location: Location, message: impl Into<String>) -> Self {
        Self { line: location.line(), column: location.column(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Finds everything that is wrong with the workflows of a file, in the order in which it stands
/// there. Documents of other kinds are left alone.
pub fn lint(text: &str) -> Vec<Finding> {
    let trees: Vec<Tree> = match serde_saphyr::from_multiple(text) {
        Ok(trees) => trees,
        Err(error) => return vec![broken(&error)],
    };
    let documents: Vec<Value> = match serde_saphyr::from_multiple(text) {
        Ok(documents) => documents,
        Err(error) => return vec![broken(&error)],
    };
    let mut found = Vec::new();
    let mut workflows = 0;
    for (tree, document) in trees.iter().zip(documents) {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        if document["kind"] != "Observatory" || !version.starts_with(GROUP) {
            continue;
        }
        workflows += 1;
        lint_one(tree, document, &mut found);
    }
    if workflows == 0 {
        let message = format!("there is no Observatory of {GROUP}/v1alpha1 in this file");
        found.push(Finding { line: 1, column: 1, message });
    }
    found.sort_by_key(|finding| (finding.line, finding.column));
    found.dedup();
    found
}

fn broken(error: &serde_saphyr::Error) -> Finding {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let text = error.without_snippet().to_string();
    Finding::at(location, text.lines().next().unwrap_or("this is not YAML").to_owned())
}

fn lint_one(tree: &Tree, document: Value, found: &mut Vec<Finding>) {
    let before = found.len();
    let definition = serde_json::to_value(crd()).unwrap_or_default();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    if tree.value.get("metadata").and_then(|meta| meta.value.get("name")).is_none()
        && document["metadata"]["generateName"].is_null()
    {
        found.push(Finding::at(tree.referenced, "metadata.name is missing; a workflow needs a name"));
    }
    if let Some(spec) = tree.value.get("spec") {
        compare(spec, &document["spec"], &schema["properties"]["spec"], "spec", found);
    } else {
        found.push(Finding::at(tree.referenced, "spec is missing; put the tasks into spec.tasks"));
    }
    match serde_json::from_value::<Observatory>(document) {
        Ok(workflow) => {
            for problem in check(&workflow.spec) {
                found.push(Finding::at(locate(tree, &problem), problem.message));
            }
        }
        Err(error) if found.len() == before => {
            found.push(Finding::at(tree.referenced, error.to_string()));
        }
        Err(_) => {}
    }
}

/// Compares a value with the schema of the definition: unknown and missing fields, wrong types.
fn compare(tree: &Tree, value: &Value, schema: &Value, path: &str, found: &mut Vec<Finding>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if !fits(value, schema) {
        let wanted = schema["type"].as_str().unwrap_or("another type");
        let article = if wanted.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
        found.push(Finding::at(
            tree.referenced,
            format!("{path} must be {article} {wanted}, not {}", kind(value)),
        ));
        return;
    }
    if let (Some(text), Some(words)) = (value.as_str(), schema["enum"].as_array())
        && !words.iter().any(|word| word == text)
    {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        found.push(Finding::at(
            tree.referenced,
            format!("{path} must be one of {}, not {text:?}", words.join(", ")),
        ));
    }
    if let Some(message) = out_of_range(value, schema, path) {
        found.push(Finding::at(tree.referenced, message));
    }
    match (&tree.value, value) {
        (Node::Map(fields), Value::Object(values)) => {
            for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !values.contains_key(field) {
                    found.push(Finding::at(tree.referenced, format!("{path}.{field} is missing")));
                }
            }
            let known = schema["properties"].as_object();
            for (key, child) in fields {
                let below = format!("{path}.{}", key.value);
                let inner = known.and_then(|known| known.get(&key.value));
                match inner.or_else(|| schema.get("additionalProperties")) {
                    Some(inner) => compare(child, &values[&key.value], inner, &below, found),
                    None => {
                        let names: Vec<&str> =
                            known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                        let message = format!("{below} is not a field; known are {}", names.join(", "));
                        found.push(Finding::at(key.referenced, message));
                    }
                }
            }
        }
        (Node::List(items), Value::Array(values)) => {
            for (index, (child, value)) in items.iter().zip(values).enumerate() {
                compare(child, value, &schema["items"], &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// What to say about a number that is too small or too large.
fn out_of_range(value: &Value, schema: &Value, path: &str) -> Option<String> {
    // Of this one the check of the whole workflow says more.
    if path == "spec.maxConcurrent" {
        return None;
    }
    let number = value.as_f64()?;
    match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
        (Some(least), _) if number < least => Some(format!("{path} must be at least {least}, not {value}")),
        (_, Some(most)) if number > most => Some(format!("{path} must be at most {most}, not {value}")),
        _ => None,
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    if value.is_null() || schema["x-kubernetes-int-or-string"] == true {
        return true;
    }
    match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Where a problem stands, or what stands closest around it.
fn locate(tree: &Tree, problem: &Problem) -> Location {
    let (task, field, item) = match &problem.place {
        Place::Spec(field) => (None, *field, None),
        Place::SpecItem(field, item) => (None, *field, Some(*item)),
        Place::Task(task, field) => (Some(*task), *field, None),
        Place::TaskItem(task, field, item) => (Some(*task), *field, Some(*item)),
    };
    let mut at = tree;
    if let Some(spec) = at.value.get("spec") {
        at = spec;
        if let Some(found) =
            task.and_then(|task| at.value.get("tasks").and_then(|tasks| tasks.value.item(task)))
        {
            at = found;
        }
        for part in field.split('.') {
            match at.value.get(part) {
                Some(found) => at = found,
                None => return at.referenced,
            }
        }
        if let Some(found) = item.and_then(|item| at.value.item(item)) {
            at = found;
        }
    }
    at.referenced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        lint(text).iter().map(ToString::to_string).collect()
    }

    const HEAD: &str =
        "apiVersion: workflow.seventh-horizon.io/v1alpha1\nkind: Observatory\nmetadata:\n  name: w\nspec:\n";

    #[test]
    fn a_sound_file_has_no_findings() {
        let text = format!("{HEAD}  tasks:\n  - name: a\n    image: busybox:1.36\n---\nkind: Service\n");
        assert_eq!(found(&text), Vec::<String>::new());
    }

    #[test]
    fn problems_are_found_where_they_stand() {
        let text = format!(
            "{HEAD}  maxConcurent: 3\n  tasks:\n  - name: a\n    image: i\n    dependencies: [b]\n  - name: b\n    image: i\n    dependencies:\n    - a\n    - missing\n    timeout: 10\n"
        );
        let found = found(&text);
        assert!(found[0].starts_with("6:3: spec.maxConcurent is not a field; known are "), "{found:?}");
        assert_eq!(
            found.last().map(String::as_str),
            Some("16:14: spec.tasks[1].timeout must be a string, not a number")
        );
    }

    #[test]
    fn a_cycle_and_an_unknown_name_are_found_where_they_stand() {
        let text = format!(
            "{HEAD}  tasks:\n  - name: a\n    image: i\n    dependencies: [b]\n  - name: b\n    image: i\n    dependencies:\n    - a\n    - missing\n"
        );
        assert_eq!(
            found(&text),
            [
                "9:19: tasks wait for each other: a -> b -> a; remove one of these dependencies",
                "14:7: task \"b\" depends on \"missing\", which does not exist",
            ]
        );
    }

    #[test]
    fn broken_yaml_is_one_finding_with_its_place() {
        let found = lint("a: [1, 2\nb: 3\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].line >= 1, "{found:?}");
    }

    #[test]
    fn missing_fields_and_wrong_words_are_named() {
        let text = format!("{HEAD}  failurePolicy: Maybe\n  tasks:\n  - image: i\n");
        assert_eq!(
            found(&text),
            [
                "6:18: spec.failurePolicy must be one of Continue, Stop, not \"Maybe\"",
                "8:5: spec.tasks[0].name is missing",
            ]
        );
    }

    #[test]
    fn a_file_without_workflows_says_so() {
        assert_eq!(
            found("kind: Service\n"),
            ["1:1: there is no Observatory of workflow.seventh-horizon.io/v1alpha1 in this file"]
        );
    }
}
