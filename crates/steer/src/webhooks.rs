//! The operators' webhooks, as `steer` sets them up.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use kube::Client;
use steersman::{
    Manager,
    webhook::{Certificates, FailurePolicy, Lifetimes, Reach, WebhookOptions, Webhooks},
};
use steersman_webapp::{Latest, Policy};

use crate::cli::Operator;

/// How webhooks of operators on a cluster are served. Without a Service or a URL there are none.
#[derive(Args, Debug, Clone)]
pub(crate) struct WebhookArgs {
    /// Serve webhooks that the API server reaches through this Service; the webhook configurations are written
    #[arg(long, env = "STEER_WEBHOOK_SERVICE", value_name = "NAMESPACE/NAME[:PORT]", value_parser = service, conflicts_with = "webhook_url")]
    pub(crate) webhook_service: Option<ServiceName>,
    /// Serve webhooks that the API server reaches at this URL, such as https://10.0.0.1:9443
    #[arg(long, env = "STEER_WEBHOOK_URL", value_name = "URL")]
    pub(crate) webhook_url: Option<String>,
    /// Address of webhooks; of several operators the first is there, the others at the ports after it
    #[arg(long, env = "STEER_WEBHOOK_ADDRESS", default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub(crate) webhook_address: SocketAddr,
    /// Folder with tls.crt, tls.key and, where nobody else announces it, ca.crt; without it the operator makes
    /// its own and keeps them in a Secret of the Lease's namespace
    #[arg(long, env = "STEER_WEBHOOK_CERT_DIR", value_name = "DIR")]
    pub(crate) webhook_cert_dir: Option<PathBuf>,
    /// What becomes of requests while no webhook answers
    #[arg(long, env = "STEER_WEBHOOK_FAILURE_POLICY", default_value = "fail", value_enum)]
    pub(crate) webhook_failure_policy: WhenSilent,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// What webhooks ask of objects.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct PolicyArgs {
    /// What becomes of WebApps whose image is tagged latest
    #[arg(long, env = "STEER_LATEST_IMAGES", default_value = "warn", value_enum)]
    pub(crate) latest_images: LatestImages,
    /// How many replicas a WebApp may have at most
    #[arg(long, env = "STEER_MAX_REPLICAS", default_value_t = 1000, value_name = "N")]
    pub(crate) max_replicas: i32,
}

/// What becomes of requests that nobody answers.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenSilent {
    /// They are refused
    Fail,
    /// They go through
    Ignore,
}

/// What becomes of images tagged latest.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatestImages {
    /// They are accepted with a warning
    Warn,
    /// They are refused
    Refuse,
}

/// A Service and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceName {
    namespace: String,
    name: String,
    port: u16,
}

fn service(text: &str) -> Result<ServiceName, String> {
    let wrong = || "expected NAMESPACE/NAME or NAMESPACE/NAME:PORT".to_owned();
    let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
        None => (rest, 443),
    };
    if namespace.is_empty() || name.is_empty() {
        return Err(wrong());
    }
    Ok(ServiceName { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

impl PolicyArgs {
    fn policy(self) -> Policy {
        Policy {
            latest: match self.latest_images {
                LatestImages::Warn => Latest::Warn,
                LatestImages::Refuse => Latest::Refuse,
            },
            max_replicas: self.max_replicas,
        }
    }
}

/// Adds the webhooks of every operator to the one manager of `steer up`.
pub(crate) fn all(manager: Manager, address: SocketAddr, client: &Client, policy: PolicyArgs) -> Manager {
    let mut webhooks = Webhooks::new(WebhookOptions { address, ..WebhookOptions::default() });
    for operator in [Operator::Webapp, Operator::Observatory, Operator::Infra, Operator::Elasti] {
        webhooks = of(operator, webhooks, client, policy);
    }
    manager.webhooks(webhooks)
}

/// Adds the webhooks of one operator on a cluster, if they are wanted.
pub(crate) fn add(
    manager: Manager,
    operator: Operator,
    client: &Client,
    args: &WebhookArgs,
    namespace: &str,
    index: usize,
) -> anyhow::Result<Manager> {
    let reach = match (&args.webhook_service, &args.webhook_url) {
        (Some(ServiceName { namespace, name, port }), _) => {
            Reach::Service { namespace: namespace.clone(), name: name.clone(), port: *port }
        }
        (None, Some(url)) => Reach::Url(url.clone()),
        (None, None) => return Ok(manager),
    };
    let certificates = match &args.webhook_cert_dir {
        Some(dir) => {
            let ca = Some(dir.join("ca.crt")).filter(|path| path.exists());
            Certificates::Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), ca }
        }
        None => Certificates::Secret {
            namespace: namespace.to_owned(),
            name: certificate(operator),
            lifetimes: Lifetimes::default(),
        },
    };
    let port = match args.webhook_address.port() {
        0 => 0,
        port => port.checked_add(u16::try_from(index)?).context("there is no port left for webhooks")?,
    };
    let options = WebhookOptions {
        address: SocketAddr::new(args.webhook_address.ip(), port),
        certificates,
        reach,
        failure_policy: match args.webhook_failure_policy {
            WhenSilent::Fail => FailurePolicy::Fail,
            WhenSilent::Ignore => FailurePolicy::Ignore,
        },
        ..WebhookOptions::default()
    };
    Ok(manager.webhooks(of(operator, Webhooks::new(options), client, args.policy)))
}

/// Adds the webhooks of one operator as its package in `config/` serves them.
pub(crate) fn packaged(manager: Manager, operator: Operator, client: &Client, namespace: &str) -> Manager {
    let name = format!("{}-webhook-service", operator.name());
    let options = WebhookOptions {
        certificates: Certificates::Secret {
            namespace: namespace.to_owned(),
            name: certificate(operator),
            lifetimes: Lifetimes::default(),
        },
        reach: Reach::Service { namespace: namespace.to_owned(), name, port: 443 },
        ..WebhookOptions::default()
    };
    let policy =
        PolicyArgs { latest_images: LatestImages::Warn, max_replicas: Policy::default().max_replicas };
    manager.webhooks(of(operator, Webhooks::new(options), client, policy))
}

/// The Secret in which an operator keeps the certificates of its webhooks.
fn certificate(operator: Operator) -> String {
    format!("{}-webhook-certificate", operator.name())
}

fn of(operator: Operator, webhooks: Webhooks, client: &Client, policy: PolicyArgs) -> Webhooks {
    match operator {
        Operator::Webapp | Operator::All => steersman_webapp::webhooks(webhooks, policy.policy()),
        Operator::Observatory => steersman_observatory::admission::webhooks(webhooks),
        Operator::Infra => steersman_infra::admission::webhooks(webhooks, client.clone()),
        Operator::Elasti => steersman_elasti::admission::webhooks(webhooks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_with_their_namespace() {
        let expected = ServiceName { namespace: "a".into(), name: "b".into(), port: 443 };
        assert_eq!(service("a/b"), Ok(expected.clone()));
        assert_eq!(service("a/b:9443"), Ok(ServiceName { port: 9443, ..expected }));
        for wrong in ["a", "a/", "/b", "a/b:x"] {
            assert!(service(wrong).is_err(), "{wrong}");
        }
    }
}
