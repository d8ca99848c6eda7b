//! Tokens of service accounts in a pod's volumes: renewed before they end, for as long as the pod runs.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};
use tokio::time::{Instant, timeout};

use super::lookup::{Lookup, LookupError, Token};

/// Even a token that lasts for years is renewed once a day, as the kubelet does.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long to wait after a renewal that failed; the old token still lasts for a while.
const PAUSE: Duration = Duration::from_secs(10);
/// How long the API server may take: the pod's other affairs wait meanwhile.
const ANSWER: Duration = Duration::from_secs(10);

/// A token that was written into a volume, and when it has to be renewed.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The volume's folder.
    pub(crate) folder: PathBuf,
    /// The permission bits of the file.
    pub(crate) mode: u32,
    source: ServiceAccountTokenProjection,
    at: Instant,
}

impl Renewal {
    /// What has to be done about a token that was just written.
    pub(crate) fn of(
        token: &Token,
        folder: PathBuf,
        mode: u32,
        source: &ServiceAccountTokenProjection,
    ) -> Self {
        Self { folder, mode, source: source.clone(), at: due(token) }
    }

    /// When it is time.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// The file's path in the volume.
    pub(crate) fn path(&self) -> &str {
        &self.source.path
    }

    /// A new token; none where there is none to be had yet. Either way it says when to come again.
    pub(crate) async fn renew(&mut self, pod: &Pod, lookup: &impl Lookup) -> Option<String> {
        let asking = lookup.token(pod, self.source.audience.as_deref(), self.source.expiration_seconds);
        let problem = match timeout(ANSWER, asking).await {
            Ok(Ok(token)) => {
                self.at = due(&token);
                return Some(token.text);
            }
            Ok(Err(error)) => error,
            Err(_) => LookupError::Failed {
                kind: "serviceaccount token",
                name: self.source.path.clone(),
                message: "the API server did not answer in time".to_owned(),
            },
        };
        tracing::warn!(pod = pod.metadata.name, %problem, "a token could not be renewed, trying again");
        self.at = Instant::now() + PAUSE;
        None
    }
}

/// Four fifths of a token's life.
fn due(token: &Token) -> Instant {
    Instant::now() + (token.life / 5 * 4).clamp(PAUSE, LONGEST)
}
