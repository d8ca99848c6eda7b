//! `steer describe`: an object in full, for people, with its events.

use serde_json::{Map, Value};

use super::{Connection, get::encode, resolve::Catalog};
use crate::cli::DescribeArgs;

/// Shows what the arguments name.
pub(crate) async fn describe(args: &DescribeArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.client).await?;
    let catalog = Catalog::load(&connection).await?;
    let mut shown = 0;
    for (kind, name) in catalog.parse(&args.what)? {
        let answer = connection.get(&kind.path(Some(&connection.namespace), name)).await?;
        let objects = match answer.get("items").and_then(Value::as_array) {
            Some(items) => items.clone(),
            None => vec![answer],
        };
        for object in objects {
            if shown > 0 {
                println!("\n");
            }
            shown += 1;
            print!("{}", render(&object));
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            let namespace =
                object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
            let path = format!(
                "/api/v1/namespaces/{namespace}/events?fieldSelector={}",
                encode(&format!("involvedObject.uid={uid}"))
            );
            print!("{}", render_events(&connection.get(&path).await?));
        }
    }
    if shown == 0 {
        eprintln!("No resources found in namespace {}.", connection.namespace);
    }
    Ok(())
}

/// The parts of metadata that help nobody who reads.
const LEFT_OUT: [&str; 3] = ["managedFields", "resourceVersion", "uid"];

fn render(object: &Value) -> String {
    let mut text = String::new();
    let field = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    text.push_str(&format!("Name:       {}\n", field("/metadata/name")));
    if !field("/metadata/namespace").is_empty() {
        text.push_str(&format!("Namespace:  {}\n", field("/metadata/namespace")));
    }
    text.push_str(&format!("Kind:       {} ({})\n", field("/kind"), field("/apiVersion")));
    let empty = Map::new();
    let top = object.as_object().unwrap_or(&empty);
    let mut metadata = top.get("metadata").cloned().unwrap_or_default();
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|key, _| !LEFT_OUT.contains(&key.as_str()) && key != "name" && key != "namespace");
    }
    section(&mut text, "Metadata", &metadata);
    for (key, value) in top {
        if !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()) {
            section(&mut text, &capitalised(key), value);
        }
    }
    if let Some(status) = top.get("status") {
        section(&mut text, "Status", status);
    }
    text
}

fn section(text: &mut String, title: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(map) if map.is_empty() => {}
        Value::Object(_) | Value::Array(_) => {
            text.push_str(&format!("{title}:\n"));
            let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
            for line in yaml.lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
        scalar => text.push_str(&format!("{title}: {scalar}\n")),
    }
}

fn render_events(list: &Value) -> String {
    let items = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return "Events:     <none>\n".into();
    }
    let mut text = "Events:\n".to_owned();
    for event in items {
        let field = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let count =
            event.pointer("/count").or_else(|| event.pointer("/series/count")).and_then(Value::as_u64);
        let times = count.filter(|n| *n > 1).map(|n| format!(" (x{n})")).unwrap_or_default();
        let when = [field("/lastTimestamp"), field("/eventTime"), field("/metadata/creationTimestamp")];
        let when = when.into_iter().find(|t| !t.is_empty()).unwrap_or_default();
        text.push_str(&format!(
            "  {when}  {:<8} {}: {}{times}\n",
            field("/type"),
            field("/reason"),
            field("/message")
        ));
    }
    text
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
