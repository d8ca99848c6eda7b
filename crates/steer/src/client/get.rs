//! `steer get`: tables as the server renders them, or whole objects.

use anyhow::bail;
use serde_json::{Value, json};

use super::{
    Connection,
    resolve::{Catalog, ResourceType},
};
use crate::cli::{GetArgs, Output};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The annotation in which the node names the address of a Service on this machine.
const ADDRESS_ANNOTATION: &str = "steersman.io/address";

/// Lists what the arguments name.
pub(crate) async fn get(args: &GetArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.client).await?;
    let catalog = Catalog::load(&connection).await?;
    let wanted = catalog.parse(&args.what)?;
    let several_types = wanted.iter().any(|(kind, _)| kind.plural != wanted[0].0.plural);
    let mut found = Vec::new();
    let mut printed = 0;
    for (kind, name) in &wanted {
        if name.is_some() && args.all_namespaces && kind.namespaced {
            bail!("a name and --all-namespaces do not go together");
        }
        let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
        let mut path = kind.path(namespace, *name);
        if let (None, Some(selector)) = (name, &args.selector) {
            path.push_str(&format!("?labelSelector={}", encode(selector)));
        }
        match args.output {
            None | Some(Output::Wide) => {
                let table = connection.request("GET", &path, TABLE, None).await?;
                let rows = Rows::of(kind, &table, args, several_types);
                if !rows.lines.is_empty() {
                    if printed > 0 {
                        println!();
                    }
                    rows.print();
                    printed += 1;
                }
            }
            Some(_) => {
                let answer = connection.get(&path).await?;
                match answer.get("items").and_then(Value::as_array) {
                    Some(items) => found.extend(items.iter().map(|item| presentable(item.clone(), kind))),
                    None => found.push(presentable(answer, kind)),
                }
            }
        }
    }
    let whole = |found: Vec<Value>| match (found.len(), &wanted[..]) {
        (1, [(_, Some(_))]) => found.into_iter().next().unwrap_or_default(),
        _ => json!({"apiVersion": "v1", "kind": "List", "items": found}),
    };
    match args.output {
        Some(Output::Json) => println!("{}", serde_json::to_string_pretty(&whole(found))?),
        Some(Output::Yaml) => print!("{}", serde_saphyr::to_string(&whole(found))?),
        Some(Output::Name) => {
            for object in &found {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
                let kind = catalog.of_object(text("/apiVersion"), text("/kind"))?;
                println!("{}", kind.label(text("/metadata/name")));
            }
        }
        None | Some(Output::Wide) if printed == 0 => match (&args.selector, args.all_namespaces) {
            (Some(_), _) => eprintln!("No resources found with these labels."),
            (None, true) => eprintln!("No resources found."),
            (None, false) => eprintln!("No resources found in namespace {}.", connection.namespace),
        },
        None | Some(Output::Wide) => {}
    }
    Ok(())
}

/// Adds what items of a list lack (`apiVersion`, `kind`) and leaves out what nobody reads.
fn presentable(mut object: Value, kind: &ResourceType) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        map.entry("kind").or_insert_with(|| kind.kind.clone().into());
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Text for the command line, made of the server's Table.
struct Rows {
    heading: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Rows {
    fn of(kind: &ResourceType, table: &Value, args: &GetArgs, several_types: bool) -> Self {
        let columns = table.get("columnDefinitions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let wide = args.output == Some(Output::Wide);
        let shown: Vec<usize> = (0..columns.len())
            .filter(|i| wide || columns[*i].get("priority").and_then(Value::as_i64).unwrap_or_default() == 0)
            .collect();
        let addresses = kind.group.is_empty() && kind.plural == "services";
        let namespaces = args.all_namespaces && kind.namespaced;
        let mut heading: Vec<String> = shown
            .iter()
            .map(|i| columns[*i].get("name").and_then(Value::as_str).unwrap_or_default().to_uppercase())
            .collect();
        if namespaces {
            heading.insert(0, "NAMESPACE".into());
        }
        if addresses {
            heading.push("ADDRESS".into());
        }
        let rows = table.get("rows").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let lines = rows
            .iter()
            .map(|row| {
                let meta = |path: &str| {
                    row.pointer(&format!("/object/metadata/{path}"))
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                let mut line: Vec<String> = shown
                    .iter()
                    .map(|i| cell(row.pointer(&format!("/cells/{i}")).unwrap_or(&Value::Null)))
                    .collect();
                if several_types && let Some(name) = line.first_mut() {
                    *name = kind.label(name);
                }
                if namespaces {
                    line.insert(0, meta("namespace").to_owned());
                }
                if addresses {
                    let address = meta(&format!("annotations/{}", ADDRESS_ANNOTATION.replace('/', "~1")));
                    line.push(if address.is_empty() { "<none>".into() } else { address.to_owned() });
                }
                line
            })
            .collect();
        Self { heading, lines }
    }

    fn print(&self) {
        let widths: Vec<usize> = (0..self.heading.len())
            .map(|i| {
                let cells = self.lines.iter().filter_map(|line| line.get(i));
                cells
                    .map(|c| c.chars().count())
                    .chain([self.heading[i].chars().count()])
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        for line in [&self.heading].into_iter().chain(&self.lines) {
            let padded: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("{}", padded.join("   ").trim_end());
        }
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".into(),
        Value::String(text) if text.is_empty() => "<none>".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Percent-encodes a query value.
pub(super) fn encode(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_encoded_for_a_query() {
        assert_eq!(encode("app=web,tier!=a b"), "app%3Dweb%2Ctier%21%3Da%20b");
    }

    #[test]
    fn empty_cells_are_marked() {
        assert_eq!(cell(&json!("")), "<none>");
        assert_eq!(cell(&json!(null)), "<none>");
        assert_eq!(cell(&json!(3)), "3");
    }
}
