//! Creating the pod of an attempt exactly once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use steersman::{Context, Error};

use crate::run::{names, pod};
use crate::types::{Observatory, TaskSpec};

/// What became of an attempt's pod.
pub(super) enum Started {
    /// It exists, by this call or an earlier one.
    Pod(Arc<Pod>),
    /// It can never be.
    Refused(String),
    /// It does not exist, and nobody wanted it to.
    Absent,
    /// Nobody knows, or it cannot be yet.
    Unknown {
        /// The plain name was found to be another's: the hashed one must be used from now on.
        name_taken: bool,
        /// What was answered.
        error: Error,
    },
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// That the pod exists.
    Create,
    /// To know whether it exists.
    Find,
}

/// Makes sure that the pod of an attempt exists.
///
/// The name depends on nothing but the attempt and whether the plain name was free, so however
/// often this is called, by whatever process, there is one pod.
pub(super) async fn start(
    workflow: &Observatory,
    task: &TaskSpec,
    attempt: i32,
    mut name_taken: bool,
    wish: Wish,
    cx: &Context,
) -> Started {
    let (name, uid) = (workflow.name_any(), workflow.uid().unwrap_or_default());
    loop {
        let plain = names::plain_pod_name(&name, &task.name, attempt).filter(|_| !name_taken);
        let is_plain = plain.is_some();
        let pod_name = plain.unwrap_or_else(|| names::hashed_pod_name(&name, &uid, &task.name, attempt));
        let wanted = match pod(workflow, task, attempt, &pod_name) {
            Ok(pod) => pod,
            Err(error) => return Started::Refused(format!("the pod template is no pod: {error}")),
        };
        let mut failure = None;
        if wish == Wish::Create {
            match cx.create(&wanted).await {
                Ok(pod) => return Started::Pod(pod),
                Err(error) if error.has_code(422) || error.has_code(400) => {
                    return Started::Refused(error.to_string());
                }
                Err(error) if error.has_code(409) => failure = Some(error),
                Err(error) => return Started::Unknown { name_taken, error },
            }
        }
        // There is one of that name: ours from an earlier call, or another's.
        let pods: Api<Pod> = Api::namespaced(cx.client().clone(), &workflow.namespace().unwrap_or_default());
        match pods.get_opt(&pod_name).await {
            Ok(Some(found)) if names::is_ours(&found, &uid, &task.name, attempt) => {
                cx.remember(&found);
                return Started::Pod(Arc::new(found));
            }
            Ok(Some(_)) if is_plain => name_taken = true,
            Ok(Some(_)) => {
                return Started::Refused(format!("pod {pod_name} belongs to something else; delete it"));
            }
            Ok(None) => match failure {
                Some(error) => return Started::Unknown { name_taken, error },
                None if is_plain => name_taken = true,
                None => return Started::Absent,
            },
            Err(error) => return Started::Unknown { name_taken, error: error.into() },
        }
    }
}
