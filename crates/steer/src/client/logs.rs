//! `steer logs`: what a container wrote.

use std::io::{Write as _, stdout};

use anyhow::bail;
use futures::{AsyncReadExt as _, pin_mut};
use serde_json::Value;

use super::{
    Connection,
    get::encode,
    resolve::{Catalog, ResourceType},
};
use crate::{cli::LogsArgs, output};

/// Prints the log of a pod, or of the first pod of something that has pods.
pub(crate) async fn logs(args: &LogsArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.client).await?;
    let pod = match args.pod.split_once('/') {
        None => args.pod.clone(),
        Some(("pod" | "pods" | "po", name)) => name.to_owned(),
        Some((kind, name)) => {
            let catalog = Catalog::load(&connection).await?;
            first_pod(&connection, catalog.find(kind)?, name).await?
        }
    };
    let mut path =
        format!("/api/v1/namespaces/{}/pods/{pod}/log?follow={}", connection.namespace, args.follow);
    if let Some(container) = &args.container {
        path.push_str(&format!("&container={}", encode(container)));
    }
    if let Some(lines) = args.tail {
        path.push_str(&format!("&tailLines={lines}"));
    }
    if args.previous {
        path.push_str("&previous=true");
    }
    if args.timestamps {
        path.push_str("&timestamps=true");
    }
    let request = http::Request::get(path).body(Vec::new())?;
    let stream = match connection.client.request_stream(request).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) => bail!("error from server ({}): {}", status.reason, status.message),
        Err(error) => return Err(connection.unreachable(error)),
    };
    pin_mut!(stream);
    let (mut out, mut buffer) = (stdout(), vec![0; 16 << 10]);
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if let Err(error) = out.write_all(&buffer[..read]).and_then(|()| out.flush()) {
            output::give_up(&error);
        }
    }
}

/// The first pod, by name, of what a type and a name stand for.
async fn first_pod(connection: &Connection, kind: &ResourceType, name: &str) -> anyhow::Result<String> {
    let object = connection.get(&kind.path(Some(&connection.namespace), Some(name))).await?;
    let Some(selector) = selector(&object) else {
        bail!("{} says nothing about its pods; name a pod instead", kind.label(name));
    };
    let path =
        format!("/api/v1/namespaces/{}/pods?labelSelector={}", connection.namespace, encode(&selector));
    let pods = connection.get(&path).await?;
    match pods.pointer("/items/0/metadata/name").and_then(Value::as_str) {
        Some(pod) => Ok(pod.to_owned()),
        None => bail!("{} has no pods", kind.label(name)),
    }
}

/// The label selector of an object in text form: from its status (as scalable types publish it) or its spec.
fn selector(object: &Value) -> Option<String> {
    if let Some(text) = object.pointer("/status/selector").and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let labels = object.pointer("/spec/selector/matchLabels").or_else(|| object.pointer("/spec/selector"))?;
    let pairs: Option<Vec<String>> =
        labels.as_object()?.iter().map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    pairs.filter(|pairs| !pairs.is_empty()).map(|pairs| pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_comes_from_status_or_spec() {
        assert_eq!(selector(&json!({"status": {"selector": "a=b"}})).as_deref(), Some("a=b"));
        assert_eq!(
            selector(&json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}})).as_deref(),
            Some("a=b")
        );
        assert_eq!(selector(&json!({"spec": {"selector": {"a": "b"}}})).as_deref(), Some("a=b"));
        assert_eq!(selector(&json!({"spec": {}})), None);
    }
}
