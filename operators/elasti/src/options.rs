//! What the operator can be told.

use crate::endpoint::Callers;
use std::net::SocketAddr;
use std::time::Duration;

/// What the operator can be told.
#[derive(Clone, Debug)]
pub struct ElastiOptions {
    /// The namespace of the resolver. `elasti`.
    pub resolver_namespace: String,
    /// The Service of the resolver. `elasti-resolver-service`.
    pub resolver_service: String,
    /// The port on which the resolver takes requests. 8012.
    pub proxy_port: u16,
    /// The port on which the resolver tells how busy services are. 8013.
    pub resolver_port: u16,
    /// How often triggers are asked. Thirty seconds.
    pub polling: Duration,
    /// How long every proxy of the cluster may take to learn of new endpoints. Five seconds: for so
    /// long the resolver is in the path before the pods go.
    pub switch_delay: Duration,
    /// The Prometheus server of triggers that name none.
    pub prometheus: Option<String>,
    /// The `Authorization` header for that server.
    pub prometheus_authorization: Option<String>,
    /// Where wake-up calls are taken. Nowhere by default.
    pub listen: Option<SocketAddr>,
    /// Whose wake-up calls are taken.
    pub callers: Callers,
}

impl Default for ElastiOptions {
    fn default() -> Self {
        Self {
            resolver_namespace: "elasti".to_owned(),
            resolver_service: "elasti-resolver-service".to_owned(),
            proxy_port: 8012,
            resolver_port: 8013,
            polling: Duration::from_secs(30),
            switch_delay: Duration::from_secs(5),
            prometheus: None,
            prometheus_authorization: None,
            listen: None,
            callers: Callers::Nobody,
        }
    }
}

impl ElastiOptions {
    /// The defaults, changed by the environment variables that KubeElasti knows. Values that are no
    /// numbers where numbers belong are left out.
    #[must_use]
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let default = Self::default();
        let number = |name: &str| get(name).and_then(|value| value.trim().parse::<u16>().ok());
        let seconds = get("POLLING_INTERVAL").and_then(|value| value.trim().parse::<u64>().ok());
        let text = |name: &str| get(name).filter(|value| !value.is_empty());
        Self {
            resolver_namespace: text("ELASTI_RESOLVER_NAMESPACE").unwrap_or(default.resolver_namespace),
            resolver_service: text("ELASTI_RESOLVER_SERVICE_NAME").unwrap_or(default.resolver_service),
            proxy_port: number("ELASTI_RESOLVER_PROXY_PORT").unwrap_or(default.proxy_port),
            resolver_port: number("ELASTI_RESOLVER_PORT").unwrap_or(default.resolver_port),
            polling: seconds.filter(|seconds| *seconds > 0).map_or(default.polling, Duration::from_secs),
            prometheus: text("PROMETHEUS_TRIGGER_SERVER_ADDRESS"),
            prometheus_authorization: text("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER"),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_variables_are_understood() {
        let options = ElastiOptions::from_env(|name| match name {
            "ELASTI_RESOLVER_NAMESPACE" => Some("system".into()),
            "ELASTI_RESOLVER_PROXY_PORT" => Some("9000".into()),
            "POLLING_INTERVAL" => Some("-5".into()),
            _ => None,
        });
        assert_eq!((options.resolver_namespace.as_str(), options.proxy_port), ("system", 9000));
        assert_eq!(options.polling, Duration::from_secs(30));
    }
}
