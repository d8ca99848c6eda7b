//! What the operator can be told.

use crate::dial::Dial;
use std::ops::RangeInclusive;
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
    /// The ports of the resolver that stand for one port of one Service each. 10000 to 19999.
    pub own_ports: RangeInclusive<u16>,
    /// How often triggers are asked. Thirty seconds.
    pub polling: Duration,
    /// How long every proxy of the cluster may take to learn of new endpoints. Five seconds: for so
    /// long the resolver is in the path before the pods go.
    pub switch_delay: Duration,
    /// The Prometheus server of triggers that name none.
    pub prometheus: Option<String>,
    /// The `Authorization` header for that server.
    pub prometheus_authorization: Option<String>,
    /// The only namespaces whose ElastiServices are looked after; those of others are read, since
    /// they may use the same resolver, and never written. Empty, by default: all of them.
    pub watch_namespaces: Vec<String>,
    /// How pods and Services are reached. As the machine reaches them, by default.
    pub dial: Option<Dial>,
}

impl Default for ElastiOptions {
    fn default() -> Self {
        Self {
            resolver_namespace: "elasti".to_owned(),
            resolver_service: "elasti-resolver-service".to_owned(),
            proxy_port: 8012,
            resolver_port: 8013,
            own_ports: 10_000..=19_999,
            polling: Duration::from_secs(30),
            switch_delay: Duration::from_secs(5),
            prometheus: None,
            prometheus_authorization: None,
            watch_namespaces: Vec::new(),
            dial: None,
        }
    }
}

impl ElastiOptions {
    /// The defaults, changed by the environment variables that KubeElasti knows, and by
    /// `ELASTI_SWITCH_DELAY` in seconds. Values that are no numbers where numbers belong are left
    /// out.
    #[must_use]
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let default = Self::default();
        let number = |name: &str| get(name).and_then(|value| value.trim().parse::<u16>().ok());
        let seconds = |name: &str| get(name).and_then(|value| value.trim().parse::<u64>().ok());
        let text = |name: &str| get(name).filter(|value| !value.is_empty());
        Self {
            resolver_namespace: text("ELASTI_RESOLVER_NAMESPACE").unwrap_or(default.resolver_namespace),
            resolver_service: text("ELASTI_RESOLVER_SERVICE_NAME").unwrap_or(default.resolver_service),
            proxy_port: number("ELASTI_RESOLVER_PROXY_PORT").unwrap_or(default.proxy_port),
            resolver_port: number("ELASTI_RESOLVER_PORT").unwrap_or(default.resolver_port),
            own_ports: default.own_ports,
            polling: seconds("POLLING_INTERVAL")
                .filter(|seconds| *seconds > 0)
                .map_or(default.polling, Duration::from_secs),
            switch_delay: seconds("ELASTI_SWITCH_DELAY").map_or(default.switch_delay, Duration::from_secs),
            prometheus: text("PROMETHEUS_TRIGGER_SERVER_ADDRESS"),
            prometheus_authorization: text("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER"),
            watch_namespaces: text("WATCH_NAMESPACES").map_or_else(Vec::new, |list| names(&list)),
            dial: None,
        }
    }
}

/// The names of a list that is separated by commas.
pub fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
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
            "WATCH_NAMESPACES" => Some("shop, lab,".into()),
            _ => None,
        });
        assert_eq!((options.resolver_namespace.as_str(), options.proxy_port), ("system", 9000));
        assert_eq!(options.polling, Duration::from_secs(30));
        assert_eq!(options.watch_namespaces, ["shop", "lab"]);
    }
}
