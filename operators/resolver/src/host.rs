//! Whose a request is, by the name that the client used.

/// A service as a `Host` header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) service: &'a str,
    /// None for a bare name.
    pub(crate) namespace: Option<&'a str>,
    /// None where the client left it out, which means the default port of the scheme.
    pub(crate) port: Option<u16>,
}

/// Reads `service[.namespace[.svc[.domain]]][:port]`; anything else names no service.
pub(crate) fn parse<'a>(host: &'a str, domain: &str) -> Option<Named<'a>> {
    let host = host.split('/').next()?;
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (host, None),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let (service, rest) = match name.split_once('.') {
        Some((service, rest)) => (service, Some(rest)),
        None => (name, None),
    };
    let namespace = match rest.map(|rest| rest.split_once('.').unwrap_or((rest, ""))) {
        Some((namespace, "" | "svc")) => Some(namespace),
        Some((namespace, suffix)) if suffix.strip_prefix("svc.")?.eq_ignore_ascii_case(domain) => {
            Some(namespace)
        }
        Some(_) => return None,
        None => None,
    };
    let label = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    (label(service) && namespace.is_none_or(label)).then_some(Named { service, namespace, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_dns_gives_a_service_is_understood() {
        let web = |namespace, port| Some(Named { service: "web", namespace, port });
        let cases = [
            ("web", web(None, None)),
            ("web:80", web(None, Some(80))),
            ("web.shop", web(Some("shop"), None)),
            ("web.shop:8080", web(Some("shop"), Some(8080))),
            ("web.shop.svc", web(Some("shop"), None)),
            ("web.shop.svc.cluster.local", web(Some("shop"), None)),
            ("web.shop.svc.cluster.local.", web(Some("shop"), None)),
            ("web.shop.svc.cluster.local:80", web(Some("shop"), Some(80))),
            ("web.shop.svc.cluster.local/*", web(Some("shop"), None)),
            ("web.shop.svc.other.domain", None),
            ("web.shop.example.com", None),
            ("", None),
            (".shop", None),
            ("web:port", None),
            ("web:99999", None),
            ("[::1]:80", None),
            ("we b.shop", None),
        ];
        for (host, expected) in cases {
            assert_eq!(parse(host, "cluster.local"), expected, "{host}");
        }
    }

    #[test]
    fn a_cluster_may_have_another_domain() {
        assert!(parse("web.shop.svc.corp.example", "corp.example").is_some());
        assert!(parse("web.shop.svc.cluster.local", "corp.example").is_none());
    }
}
