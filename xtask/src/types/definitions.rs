//! What objects look like: from the OpenAPI documents and the tags of the Go types.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
};

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::{
    go_tags::{self, Package, Tags},
    modules::Modules,
    resources::Resource,
};

/// Every definition of the OpenAPI documents of the served versions.
pub(super) struct Definitions<'a> {
    modules: &'a Modules,
    schemas: BTreeMap<String, Value>,
    kinds: HashMap<(String, String, String), String>,
    packages: HashMap<PathBuf, Package>,
}

impl<'a> Definitions<'a> {
    /// Reads the documents of every group and version in `resources`.
    pub(super) fn read(modules: &'a Modules, resources: &[Resource]) -> anyhow::Result<Self> {
        let mut schemas = BTreeMap::new();
        let versions: BTreeSet<(&str, &str)> =
            resources.iter().map(|r| (r.group.as_str(), r.version.as_str())).collect();
        for (group, version) in versions {
            let path = if group.is_empty() { "api".to_owned() } else { format!("apis__{group}") };
            let document = modules.document(&format!("openapi-spec/v3/{path}__{version}_openapi.json"))?;
            for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
                schemas.insert(name.clone(), schema.clone());
            }
        }
        let mut kinds = HashMap::new();
        for (name, schema) in &schemas {
            for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let part = |key: &str| kind[key].as_str().unwrap_or_default().to_owned();
                kinds.insert((part("group"), part("version"), part("kind")), name.clone());
            }
        }
        Ok(Self { modules, schemas, kinds, packages: HashMap::new() })
    }

    /// The definition of a kind, where it has one.
    pub(super) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&String> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
    }

    /// The definitions of the kinds of all resources and subresources.
    pub(super) fn kinds(&self, resources: &[Resource]) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for resource in resources {
            for (group, version, kind) in
                std::iter::once(resource.kind()?).chain(resource.subresource_kinds()?)
            {
                // Bodies of connections, such as PodExecOptions, are parameters and have none.
                names.extend(self.of_kind(&group, &version, &kind).cloned());
            }
        }
        Ok(names)
    }

    /// The facts of the definitions in `wanted` and of all that they refer to.
    pub(super) fn closure(&mut self, mut wanted: Vec<String>) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut table = BTreeMap::new();
        while let Some(name) = wanted.pop() {
            if table.contains_key(&name) {
                continue;
            }
            let (facts, referred) =
                self.facts(&name).with_context(|| format!("cannot understand the definition of {name}"))?;
            table.insert(name, facts);
            wanted.extend(referred);
        }
        Ok(table)
    }

    fn facts(&mut self, name: &str) -> anyhow::Result<(Value, Vec<String>)> {
        let Some(schema) = self.schemas.get(name).cloned() else { bail!("it is in no document") };
        let mut referred = Vec::new();
        let tags = self.tags(name)?;
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = Map::new();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut facts = Map::new();
            let of = type_of(property, &mut referred).with_context(|| format!("field {field}"))?;
            if let Some((tags, inside)) = tags.get(field) {
                if tags.number != 0 {
                    facts.insert("n".into(), json!(tags.number));
                }
                if *inside != 0 {
                    facts.insert("in".into(), json!(inside));
                }
                if let Some(zero) = zero(tags, &of) {
                    facts.insert("zero".into(), json!(zero));
                }
            }
            facts.insert("type".into(), json!(of));
            if required.contains(&field.as_str()) {
                facts.insert("required".into(), json!(true));
            }
            copy_extensions(property, &mut facts);
            fields.insert(field.clone(), Value::Object(facts));
        }
        let mut facts = Map::new();
        if schema["x-kubernetes-map-type"] == "atomic" {
            facts.insert("atomic".into(), json!(true));
        }
        facts.insert("fields".into(), Value::Object(fields));
        Ok((Value::Object(facts), referred))
    }

    /// The tags of a struct's fields, by JSON name, those of inlined structs included; with each
    /// the protobuf number of the inlined message that it is in, or 0; below another one's, eight
    /// bits each.
    fn tags(&mut self, name: &str) -> anyhow::Result<BTreeMap<String, (Tags, u32)>> {
        let Some((folder, go_name)) = self.locate(name) else { return Ok(BTreeMap::new()) };
        if !self.packages.contains_key(&folder) {
            self.packages.insert(folder.clone(), go_tags::read(&folder)?);
        }
        let mut found = BTreeMap::new();
        self.collect(&folder, &go_name, 0, &mut found);
        Ok(found)
    }

    fn collect(&self, folder: &PathBuf, name: &str, inside: u32, found: &mut BTreeMap<String, (Tags, u32)>) {
        let Some(fields) = self.packages.get(folder).and_then(|package| package.get(name)) else { return };
        for (field, tags) in &fields.fields {
            found.insert(field.clone(), (tags.clone(), inside));
        }
        for inlined in &fields.inlined {
            let mut inner = BTreeMap::new();
            self.collect(folder, &inlined.name, inside << 8 | inlined.number, &mut inner);
            // A struct that is inlined without a number is not in the message at all, whatever
            // numbers its fields have elsewhere.
            if inlined.number == 0 {
                inner.values_mut().for_each(|(tags, inside)| (tags.number, *inside) = (0, 0));
            }
            found.append(&mut inner);
        }
    }

    /// The folder of the Go package and the Go name of a definition.
    fn locate(&self, name: &str) -> Option<(PathBuf, String)> {
        let path = name.strip_prefix("io.k8s.")?;
        let (package, go_name) = path.rsplit_once('.')?;
        let mut parts = package.split('.');
        let folder = self.modules.folder(parts.next()?);
        let folder = parts.fold(folder, |folder, part| folder.join(part));
        folder.is_dir().then(|| (folder, go_name.to_owned()))
    }
}

/// Types that Go encodes by hand, and how JSON shows them.
const SPECIAL: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microTime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "any"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "intOrString"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "any"),
];

/// A type as the table writes it: `string`, `[T]` for a list, `{T}` for a map, else a name.
fn type_of(schema: &Value, referred: &mut Vec<String>) -> anyhow::Result<String> {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(name) = reference.and_then(|path| path.rsplit('/').next()) {
        if let Some((_, special)) = SPECIAL.iter().find(|(special, _)| *special == name) {
            return Ok((*special).to_owned());
        }
        referred.push(name.to_owned());
        return Ok(name.to_owned());
    }
    Ok(match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str().unwrap_or_default()) {
        ("string", "byte") => "bytes".to_owned(),
        ("string", _) => "string".to_owned(),
        ("integer", "int64") => "int64".to_owned(),
        ("integer", _) => "int32".to_owned(),
        ("number", _) => "number".to_owned(),
        ("boolean", _) => "boolean".to_owned(),
        ("array", _) => format!("[{}]", type_of(&schema["items"], referred)?),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("{{{}}}", type_of(&schema["additionalProperties"], referred)?)
        }
        ("object" | "", _) => "any".to_owned(),
        (other, format) => bail!("there is no type {other} with format {format:?}"),
    })
}

/// What the encoder does with a field's zero value; nothing where the value tells nothing.
fn zero(tags: &Tags, of: &str) -> Option<&'static str> {
    let pointer = tags.go_type.starts_with('*');
    let collection = of.starts_with('[') || of.starts_with('{') || of == "bytes";
    let scalar = matches!(of, "string" | "int32" | "int64" | "number" | "boolean");
    match (pointer, tags.omit_empty) {
        (true, true) => None,
        (true, false) => Some("null"),
        (false, _) if tags.omit_zero => Some("omit"),
        (false, true) if collection || scalar => Some("omit"),
        (false, false) if collection || of == "any" => Some("null"),
        // Times have no zero but null; other structs are always written.
        (false, _) if of == "time" || of == "microTime" => Some("null"),
        (false, _) if of == "any" => None,
        (false, _) => Some("write"),
    }
}

/// How lists are merged, and defaults that are more than the type's zero.
fn copy_extensions(property: &Value, facts: &mut Map<String, Value>) {
    match property["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            facts.insert("keys".into(), property["x-kubernetes-list-map-keys"].clone());
        }
        Some("set") => {
            facts.insert("set".into(), json!(true));
        }
        _ => {}
    }
    if property["x-kubernetes-map-type"] == "atomic" {
        facts.insert("atomic".into(), json!(true));
    }
    for (from, to) in [("x-kubernetes-patch-strategy", "patch"), ("x-kubernetes-patch-merge-key", "mergeKey")]
    {
        if property[from].is_string() {
            facts.insert(to.into(), property[from].clone());
        }
    }
    let default = &property["default"];
    let zeros = [json!(null), json!(""), json!(0), json!(false), json!({}), json!([])];
    if !zeros.contains(default) {
        facts.insert("default".into(), default.clone());
    }
}
