//! What a task's pod is called, and how it is known as ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

/// Label: the workflow's name, or a hash of one that is too long for a label.
pub const OBSERVATORY: &str = "workflow.seventh-horizon.io/observatory";
/// Label: the workflow's uid.
pub const UID: &str = "workflow.seventh-horizon.io/uid";
/// Label: a hash of the task's name, which may hold what no label can.
pub const TASK_HASH: &str = "workflow.seventh-horizon.io/task-hash";
/// Label: the number of the attempt, from 0.
pub const ATTEMPT: &str = "workflow.seventh-horizon.io/attempt";
/// Annotation: the task's name.
pub const TASK: &str = "workflow.seventh-horizon.io/task";
/// Finalizer: keeps a pod until its end has been written into the workflow's status.
pub const RECORDED: &str = "workflow.seventh-horizon.io/recorded";
/// The container that runs the task.
pub const CONTAINER: &str = "task";

const LABEL_LENGTH: usize = 63;
const HASH_LENGTH: usize = 10;

/// `<workflow>-<task>`, for the first attempt, where that is a name that a pod can have.
pub fn plain_pod_name(workflow: &str, task: &str, attempt: i32) -> Option<String> {
    let name = format!("{workflow}-{task}");
    (attempt == 0 && is_label(&name)).then_some(name)
}

/// A name that no other attempt of any task has, beginning like the plain one.
pub fn hashed_pod_name(workflow: &str, uid: &str, task: &str, attempt: i32) -> String {
    let hash = hash(&[uid, task, &attempt.to_string()]);
    let mut name: String = format!("{workflow}-{task}")
        .chars()
        .map(|letter| letter.to_ascii_lowercase())
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .take(LABEL_LENGTH - HASH_LENGTH - 1)
        .collect();
    name.truncate(name.trim_end_matches('-').len());
    let name = name.trim_start_matches('-');
    format!("{name}-{hash}")
}

/// The labels that say whose pod it is.
pub fn labels(workflow: &str, uid: &str, task: &str, attempt: i32) -> BTreeMap<String, String> {
    let workflow = if workflow.len() <= LABEL_LENGTH { workflow.to_owned() } else { hash(&[workflow]) };
    [
        (OBSERVATORY, workflow),
        (UID, uid.to_owned()),
        (TASK_HASH, hash(&[task])),
        (ATTEMPT, attempt.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Whether a pod is this attempt of this task.
pub fn is_ours(pod: &Pod, uid: &str, task: &str, attempt: i32) -> bool {
    let labels = pod.labels();
    labels.get(UID).is_some_and(|found| found == uid)
        && labels.get(TASK_HASH) == Some(&hash(&[task]))
        && attempt_of(pod) == Some(attempt)
}

/// The attempt that a pod is.
pub fn attempt_of(pod: &Pod) -> Option<i32> {
    pod.labels().get(ATTEMPT)?.parse().ok()
}

/// The task that a pod runs.
pub fn task_of(pod: &Pod) -> Option<&str> {
    pod.annotations().get(TASK).map(String::as_str)
}

/// Whether the pod waits for its end to be recorded.
pub fn is_unrecorded(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == RECORDED)
}

/// A number from 0 to 1 that belongs to an attempt: the same whoever asks, and another for each.
pub fn spread(uid: &str, task: &str, attempt: i32) -> f64 {
    let bits = digest(&[uid, task, &attempt.to_string()]);
    let number = bits.iter().take(4).fold(0u32, |number, byte| number << 8 | u32::from(*byte));
    f64::from(number) / f64::from(u32::MAX)
}

/// The ConfigMap that holds the log of a pod that was deleted.
pub fn log_name(pod: &str) -> String {
    format!("{pod}-log")
}

/// Those labels of a pod that say whose it is.
pub fn own_labels(pod: &Pod) -> BTreeMap<String, String> {
    let own = [OBSERVATORY, UID, TASK_HASH, ATTEMPT];
    own.into_iter().filter_map(|key| Some((key.to_owned(), pod.labels().get(key)?.clone()))).collect()
}

/// A DNS label: what a pod needs for a host name.
fn is_label(name: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    name.len() <= LABEL_LENGTH && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

fn hash(parts: &[&str]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bits = digest(parts);
    bits.iter().take(HASH_LENGTH).map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_after_its_workflow_and_task() {
        assert_eq!(plain_pod_name("my-workflow", "task-1", 0).as_deref(), Some("my-workflow-task-1"));
        for (workflow, task, attempt) in
            [("w", "Upper", 0), ("w", "under_score", 0), ("w.x", "t", 0), ("w", "t", 1), ("w", "t-", 0)]
        {
            assert_eq!(plain_pod_name(workflow, task, attempt), None, "{workflow} {task} {attempt}");
        }
        assert_eq!(plain_pod_name("w", &"x".repeat(62), 0), None);
    }

    #[test]
    fn a_hashed_name_is_always_a_label_and_never_shared() {
        let long = "NFCORE_RNASEQ:RNASEQ:ALIGN_STAR:BAM_SORT.STATS_SAMTOOLS_(WT_REP1)".repeat(2);
        let mut seen = std::collections::HashSet::new();
        for task in ["a", "A", "ä", "---", &long, &format!("{long}x")] {
            for attempt in 0..3 {
                for uid in ["u1", "u2"] {
                    let name = hashed_pod_name("Run.1", uid, task, attempt);
                    assert!(is_label(&name), "{name}");
                    assert!(seen.insert(name));
                }
            }
        }
    }

    #[test]
    fn the_labels_of_any_task_are_valid() {
        for value in labels(&"w".repeat(253), "uid", "größe/1", 12).values() {
            assert!(
                value.len() <= 63 && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{value}"
            );
        }
    }
}
