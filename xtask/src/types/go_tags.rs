//! What the tags of the Go types tell and OpenAPI does not: protobuf numbers, and which values
//! the JSON encoder leaves out.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use anyhow::Context;

/// The fields of the structs of one Go package, by struct and then by JSON name.
pub(super) type Package = HashMap<String, Struct>;

/// One struct.
#[derive(Default)]
pub(super) struct Struct {
    /// By JSON name.
    pub(super) fields: BTreeMap<String, Tags>,
    /// Structs whose fields are written as if they were this one's.
    pub(super) inlined: Vec<Inlined>,
}

/// A struct inside another whose fields JSON shows as the outer one's.
pub(super) struct Inlined {
    /// Its name, with the package's alias where it comes from another.
    pub(super) name: String,
    /// Its number in the outer protobuf message; 0 where protobuf has no such message.
    pub(super) number: u32,
}

/// What is known of one field.
#[derive(Clone)]
pub(super) struct Tags {
    /// Its Go type, for example `*int32`.
    pub(super) go_type: String,
    /// Its protobuf number.
    pub(super) number: u32,
    /// Whether an empty value is left out.
    pub(super) omit_empty: bool,
    /// Whether a zero struct is left out.
    pub(super) omit_zero: bool,
}

/// Reads the structs of the Go package in `folder`.
pub(super) fn read(folder: &Path) -> anyhow::Result<Package> {
    let mut package = Package::new();
    let files = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for file in files {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            let source = fs::read_to_string(&path)?;
            parse(&source, &mut package);
        }
    }
    Ok(package)
}

fn parse(source: &str, package: &mut Package) {
    let mut current: Option<(String, Struct)> = None;
    for line in source.lines() {
        match &mut current {
            None => {
                if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {"))
                {
                    current = Some((name.to_owned(), Struct::default()));
                }
            }
            Some(_) if line == "}" => {
                package.extend(current.take());
            }
            Some((_, fields)) => parse_field(line.trim(), fields),
        }
    }
}

/// Reads `Name Type \`json:"name,omitempty" protobuf:"bytes,1,opt"\``.
fn parse_field(line: &str, into: &mut Struct) {
    if line.starts_with("//") {
        return;
    }
    let Some((declaration, tags)) = line.split_once('`') else { return };
    let Some(json) = tag(tags, "json") else { return };
    let number =
        tag(tags, "protobuf").and_then(|text| text.split(',').nth(1)?.parse().ok()).unwrap_or_default();
    let mut words = declaration.split_whitespace();
    let (Some(first), second) = (words.next(), words.next()) else { return };
    let mut options = json.split(',');
    let name = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    let go_type = second.unwrap_or(first).to_owned();
    if name.is_empty() {
        into.inlined.push(Inlined { name: go_type.trim_start_matches('*').to_owned(), number });
        return;
    }
    if name != "-" {
        let tags = Tags {
            go_type,
            number,
            omit_empty: options.contains(&"omitempty"),
            omit_zero: options.contains(&"omitzero"),
        };
        into.fields.insert(name.to_owned(), tags);
    }
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_numbers_pointers_and_what_is_left_out() {
        let mut package = Package::new();
        parse(
            "type Spec struct {\n\t// Old bool `json:\"old\"`\n\tReplicas *int32 `json:\"replicas,omitempty\" \
             protobuf:\"varint,1,opt,name=replicas\"`\n\tVolumeSource `json:\",inline\" \
             protobuf:\"bytes,2,opt\"`\n}\n",
            &mut package,
        );
        let spec = &package["Spec"];
        assert_eq!(spec.fields.keys().collect::<Vec<_>>(), ["replicas"]);
        let replicas = &spec.fields["replicas"];
        assert_eq!((replicas.go_type.as_str(), replicas.number, replicas.omit_empty), ("*int32", 1, true));
        assert_eq!((spec.inlined[0].name.as_str(), spec.inlined[0].number), ("VolumeSource", 2));
    }
}
