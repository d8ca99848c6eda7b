//! What a resolver can be told.

use crate::feed::Waker;
use kube::Client;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a resolver can be told.
#[derive(Clone, Debug, Default)]
pub struct ResolverOptions {
    /// The operator's endpoint for wake-up calls, as `host:port`. None: the resolver scales itself.
    pub operator: Option<String>,
    /// What is shown to that endpoint.
    pub token: Token,
    /// A header that names the service in place of `Host`; none by default.
    pub host_header: Option<String>,
    /// The domain of the cluster. `cluster.local`.
    pub cluster_domain: Option<String>,
    /// How long a request may wait for a pod. Ten minutes.
    pub hold: Option<Duration>,
    /// How many requests may wait for all services together. 50,000.
    pub pending: Option<usize>,
    /// How often a service is woken again while no pod comes up. Ten seconds.
    pub wake_again: Option<Duration>,
}

/// What is shown to the operator.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Token {
    /// Nothing.
    #[default]
    None,
    /// This text.
    Text(String),
    /// What stands in this file at the time; tokens of service accounts change.
    File(PathBuf),
}

impl Token {
    /// What is shown now.
    pub(crate) async fn read(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Text(text) => Some(text.clone()),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Some(text.trim().to_owned()),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the token for the operator cannot be read");
                    None
                }
            },
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl ResolverOptions {
    /// What the environment says, in KubeElasti's variables: `ELASTI_OPERATOR_NAMESPACE`,
    /// `ELASTI_OPERATOR_SERVICE_NAME` and `ELASTI_OPERATOR_PORT` name the operator, `HEADER_FOR_HOST`,
    /// `KUBERNETES_CLUSTER_DOMAIN`, `REQ_TIMEOUT`, `QUEUE_SIZE` and `OPERATOR_RETRY_DURATION` are as
    /// there; and `ELASTI_OPERATOR_TOKEN` or `ELASTI_OPERATOR_TOKEN_FILE` is what is shown to the
    /// operator. Values that are no numbers where numbers belong are left out.
    #[must_use]
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let text =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let number = |name: &str| text(name).and_then(|value| value.parse::<u64>().ok()).filter(|n| *n > 0);
        let token = match (text("ELASTI_OPERATOR_TOKEN"), text("ELASTI_OPERATOR_TOKEN_FILE")) {
            (Some(token), _) => Token::Text(token),
            (None, Some(path)) => Token::File(path.into()),
            (None, None) => Token::None,
        };
        let cluster_domain = text("KUBERNETES_CLUSTER_DOMAIN");
        let operator = text("ELASTI_OPERATOR_SERVICE_NAME").map(|service| {
            let port = number("ELASTI_OPERATOR_PORT").unwrap_or(8013);
            // A pod of the same namespace is told where the Service is, which works without names too.
            let stem = service.to_uppercase().replace(['-', '.'], "_");
            match (text(&format!("{stem}_SERVICE_HOST")), number(&format!("{stem}_SERVICE_PORT"))) {
                (Some(host), Some(port)) => format!("{host}:{port}"),
                _ => {
                    let namespace = text("ELASTI_OPERATOR_NAMESPACE").unwrap_or_else(|| "elasti".to_owned());
                    let domain = cluster_domain.as_deref().unwrap_or("cluster.local");
                    format!("{service}.{namespace}.svc.{domain}:{port}")
                }
            }
        });
        Self {
            operator,
            token,
            host_header: text("HEADER_FOR_HOST"),
            cluster_domain,
            hold: number("REQ_TIMEOUT").map(Duration::from_secs),
            pending: number("QUEUE_SIZE").and_then(|size| usize::try_from(size).ok()),
            wake_again: number("OPERATOR_RETRY_DURATION").map(Duration::from_secs),
        }
    }

    /// The settings of the data plane.
    pub(crate) fn settings(self, client: &Client) -> steersman_resolver::Options {
        let waker = Waker::new(self.operator, self.token, client.clone());
        let usual = steersman_resolver::Options::new(Arc::new(waker));
        steersman_resolver::Options {
            host_header: self.host_header,
            cluster_domain: self.cluster_domain.unwrap_or_else(|| usual.cluster_domain.clone()),
            hold: self.hold.unwrap_or(usual.hold),
            pending: self.pending.unwrap_or(usual.pending),
            wake_again: self.wake_again.unwrap_or(usual.wake_again),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &'static [(&'static str, &'static str)]) -> ResolverOptions {
        ResolverOptions::from_env(|asked| {
            variables.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_operator_is_found_by_its_service() {
        assert_eq!(read(&[]).operator, None);
        let named = read(&[
            ("ELASTI_OPERATOR_SERVICE_NAME", "elasti-operator"),
            ("ELASTI_OPERATOR_NAMESPACE", "sys"),
        ]);
        assert_eq!(named.operator.as_deref(), Some("elasti-operator.sys.svc.cluster.local:8013"));
        let told = read(&[
            ("ELASTI_OPERATOR_SERVICE_NAME", "elasti-operator"),
            ("ELASTI_OPERATOR_SERVICE_HOST", "10.96.0.9"),
            ("ELASTI_OPERATOR_SERVICE_PORT", "8013"),
        ]);
        assert_eq!(told.operator.as_deref(), Some("10.96.0.9:8013"));
    }

    #[test]
    fn the_known_variables_are_understood_and_nonsense_is_left_out() {
        let options = read(&[
            ("HEADER_FOR_HOST", "X-Envoy-Decorator-Operation"),
            ("REQ_TIMEOUT", "60"),
            ("QUEUE_SIZE", "many"),
            ("OPERATOR_RETRY_DURATION", "0"),
            ("ELASTI_OPERATOR_TOKEN_FILE", "/var/run/secrets/elasti/token"),
        ]);
        assert_eq!(options.hold, Some(Duration::from_secs(60)));
        assert_eq!((options.pending, options.wake_again), (None, None));
        assert_eq!(options.token, Token::File("/var/run/secrets/elasti/token".into()));
        assert_eq!(options.host_header.as_deref(), Some("X-Envoy-Decorator-Operation"));
    }
}
