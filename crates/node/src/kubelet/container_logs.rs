//! `/containerLogs/{namespace}/{pod}/{container}`

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio::sync::mpsc;

use super::{Answer, Endpoints, text};
use crate::logs::{LogQuery, send};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Asked {
    log: LogQuery,
    follow: bool,
    previous: bool,
}

/// Reads the query; names the parameter that is wrong.
fn parse(query: &str, now: Timestamp) -> Result<Asked, String> {
    let mut asked = Asked::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value);
        let wrong = |what: &str| format!("{name} is \"{value}\"; expected {what}");
        let flag = || match value.as_str() {
            "true" | "1" | "" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(wrong("true or false")),
        };
        match name {
            "follow" => asked.follow = flag()?,
            "previous" => asked.previous = flag()?,
            "timestamps" => asked.log.timestamps = flag()?,
            "tailLines" => {
                asked.log.tail = Some(value.parse().map_err(|_| wrong("a number of lines"))?);
            }
            "limitBytes" => {
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                asked.log.limit = Some(limit.ok_or_else(|| wrong("a number of bytes above 0"))?);
            }
            "sinceSeconds" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.ok_or_else(|| wrong("a number of seconds above 0"))?;
                let since = now.checked_sub(SignedDuration::from_secs(seconds));
                asked.log.since = since.ok();
            }
            "sinceTime" => {
                asked.log.since = Some(value.parse().map_err(|_| wrong("a time"))?);
            }
            _ => {}
        }
    }
    Ok(asked)
}

/// Undoes percent-encoding.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut result = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let encoded = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match encoded {
            Some(byte) => {
                result.push(byte);
                at += 3;
            }
            None => {
                result.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&result).into_owned()
}

pub(super) async fn answer(
    endpoints: &Endpoints,
    [namespace, name, container]: [&str; 3],
    query: &str,
) -> Answer {
    let asked = match parse(query, (endpoints.clock)()) {
        Ok(asked) => asked,
        Err(message) => return text(StatusCode::BAD_REQUEST, format!("{message}\n")),
    };
    let Some(pod) = endpoints.pods.find(namespace, name) else {
        let message = format!("pod \"{name}\" in namespace \"{namespace}\" is not on this node\n");
        return text(StatusCode::NOT_FOUND, message);
    };
    if !has_container(&pod, container) {
        let message = format!("container {container} not found in pod {name}_{namespace}\n");
        return text(StatusCode::NOT_FOUND, message);
    }
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let folder = endpoints.logs.pod(namespace, name, &uid);
    let runs = runs(&folder.join(container));
    let run = match asked.previous {
        false => runs.last(),
        true => runs.iter().rev().nth(1),
    };
    let Some(run) = run else {
        return text(StatusCode::BAD_REQUEST, explain(&pod, container, asked.previous));
    };
    let file = endpoints.logs.file(&folder, container, *run);
    let growing = asked.follow.then(|| endpoints.logs.growing(&file)).flatten();
    let (sender, receiver) = mpsc::channel::<Bytes>(64);
    tokio::spawn(async move {
        if let Err(error) = send(&file, &asked.log, growing, &sender).await {
            tracing::debug!(%error, file = %file.display(), "log not sent");
        }
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        let first = receiver.recv().await?;
        // What is there already goes out together.
        let mut more = bytes::BytesMut::from(first.as_ref());
        while more.len() < 64 * 1024
            && let Ok(next) = receiver.try_recv()
        {
            more.extend_from_slice(&next);
        }
        Some((Ok::<_, Infallible>(Frame::data(more.freeze())), receiver))
    });
    let mut answer = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    answer
}

fn has_container(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        all.into_iter().any(|container| container.name == name)
    })
}

/// The numbers of the runs that have a log, in order.
fn runs(folder: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
    runs.sort_unstable();
    runs
}

/// Why there is no log.
fn explain(pod: &Pod, container: &str, previous: bool) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if previous {
        return format!("previous terminated container \"{container}\" in pod \"{name}\" not found\n");
    }
    let statuses = pod.status.as_ref().map(|status| {
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        all.flatten().collect::<Vec<&ContainerStatus>>()
    });
    let reason = statuses
        .unwrap_or_default()
        .iter()
        .find(|status| status.name == container)
        .and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone())
        .unwrap_or_else(|| "ContainerCreating".to_string());
    format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_what_is_wanted() {
        let now = Timestamp::from_second(100).expect("a time");
        let asked =
            parse("follow=true&tailLines=5&sinceSeconds=10&timestamps=true&limitBytes=9&pretty=x", now)
                .expect("valid");
        assert!(asked.follow && asked.log.timestamps && !asked.previous);
        assert_eq!((asked.log.tail, asked.log.limit), (Some(5), Some(9)));
        assert_eq!(asked.log.since, Timestamp::from_second(90).ok());
        let since = parse("sinceTime=1970-01-01T00%3A00%3A05Z", now).expect("valid");
        assert_eq!(since.log.since, Timestamp::from_second(5).ok());
        let error = parse("tailLines=-1", now).expect_err("negative");
        assert_eq!(error, "tailLines is \"-1\"; expected a number of lines");
    }
}
