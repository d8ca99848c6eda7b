//! Keeps webhooks served: certificates fresh, configurations true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::authority::{Lifetimes, State};
use super::certificates::{Identity, Shown};
use super::install::{Configurations, names};
use super::server::Server;
use super::{Certificates, WebhookError, Webhooks};
use crate::clock::Clock;
use crate::metrics::{CertificateMetrics, Metrics};

/// How often files are looked at.
const FILES: Duration = Duration::from_secs(1);
/// How long the API server may be out of reach at the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves webhooks.
pub(crate) struct Keeper {
    shown: Arc<Shown>,
    certificates: Certificates,
    names: Vec<String>,
    configurations: Option<Configurations>,
    client: Client,
    clock: Clock,
    metrics: CertificateMetrics,
    /// What was shown and announced last.
    current: Option<(Identity, Option<String>)>,
    /// What an ephemeral authority made.
    own: Option<State>,
}

/// What a manager lends to those who serve over TLS.
pub(crate) struct Serving {
    /// Of the operator, and of its webhook configurations.
    pub(crate) name: String,
    /// Writes also while this process does not lead.
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// A certificate for another server of the same process.
pub(crate) struct Certified {
    /// Where it comes from.
    pub(crate) certificates: Certificates,
    /// What one of our own is good for.
    pub(crate) names: Vec<String>,
}

impl Keeper {
    /// Keeps a certificate fresh for a server that nobody must be told of, and speaks HTTP/1.1.
    pub(crate) async fn certify(
        wanted: Certified,
        serving: Serving,
        tasks: &mut JoinSet<()>,
    ) -> Result<TlsAcceptor, WebhookError> {
        let mut keeper = Self {
            shown: Arc::default(),
            certificates: wanted.certificates,
            names: wanted.names,
            configurations: None,
            client: serving.client,
            clock: serving.clock,
            metrics: serving.metrics.certificates(),
            current: None,
            own: None,
        };
        let mut config = ServerConfig::clone(keeper.shown.acceptor()?.config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        keeper.settle().await?;
        tasks.spawn(keeper.keep(serving.stop));
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Listens at the address of these webhooks.
    pub(crate) async fn listen(webhooks: &Webhooks) -> Result<TcpListener, WebhookError> {
        let address = webhooks.options.address;
        TcpListener::bind(address).await.map_err(|source| WebhookError::Listen { address, source })
    }

    /// Begins to serve, and returns once the API server knows where.
    pub(crate) async fn start(
        webhooks: Webhooks,
        listener: TcpListener,
        serving: Serving,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), WebhookError> {
        let Serving { name, client, clock, metrics, stop } = serving;
        let Webhooks { options, handlers, converters } = webhooks;
        let address = options.address;
        let bound = listener.local_addr().map_err(|source| WebhookError::Listen { address, source })?;
        let configurations = Configurations::of(&name, &handlers, &converters, &options, bound);
        let mut keeper = Self {
            shown: Arc::default(),
            names: names(&options.reach, bound),
            certificates: options.certificates.clone(),
            configurations,
            client,
            clock,
            metrics: metrics.certificates(),
            current: None,
            own: None,
        };
        let acceptor = keeper.shown.acceptor()?;
        let server = Server::new(handlers, converters, options.timeout, &metrics);
        tasks.spawn(server.serve(listener, acceptor, stop.clone()));
        keeper.settle().await?;
        tracing::info!(address = %bound, "serving webhooks");
        tasks.spawn(keeper.keep(stop));
        Ok(())
    }

    /// Tries until it works, for as long as an API server may take to come up.
    async fn settle(&mut self) -> Result<(), WebhookError> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.refresh().await {
                Ok(()) => return Ok(()),
                Err(error) if tokio::time::Instant::now() >= deadline || !is_passing(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate is not ready, trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn keep(mut self, stop: CancellationToken) {
        let pause = match &self.certificates {
            Certificates::Ephemeral => Lifetimes::default().check,
            Certificates::Secret { lifetimes, .. } => lifetimes.check,
            Certificates::Files { .. } => FILES,
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "a certificate could not be refreshed; the last one stays");
            }
        }
    }

    /// Shows the certificate of the hour and tells the API server whom to trust, where either changed.
    async fn refresh(&mut self) -> Result<(), WebhookError> {
        let refreshed = self.refresh_uncounted().await;
        if let Certificates::Files { .. } = self.certificates {
            self.metrics.reads.inc();
            self.metrics.errors.inc_by(u64::from(refreshed.is_err()));
        }
        refreshed
    }

    async fn refresh_uncounted(&mut self) -> Result<(), WebhookError> {
        let (identity, ca) = self.load().await?;
        let now = Some((identity, ca));
        if self.current == now {
            return Ok(());
        }
        if let Some((identity, ca)) = &now {
            let before = self.current.as_ref().map(|(_, ca)| ca);
            if before != Some(ca)
                && let Some(configurations) = &self.configurations
            {
                // Trust comes before use, and mistrust after: both CAs are good while the certificate changes.
                let both = before
                    .map(|before| [before.as_deref(), ca.as_deref()].map(Option::unwrap_or_default).concat());
                if let Some(both) = both.filter(|both| !both.is_empty()) {
                    configurations.apply(&self.client, Some(&both)).await?;
                }
                self.shown.show(identity)?;
                configurations.apply(&self.client, ca.as_deref()).await?;
            }
            self.shown.show(identity)?;
            tracing::info!("showing a new certificate");
        }
        self.current = now;
        Ok(())
    }

    /// The certificate to show and the CA to trust.
    async fn load(&mut self) -> Result<(Identity, Option<String>), WebhookError> {
        match &self.certificates {
            Certificates::Ephemeral => {
                let next =
                    State::next(self.own.as_ref(), &self.names, &Lifetimes::default(), (self.clock)())?;
                if let Some(next) = next {
                    self.own = Some(next);
                }
                let state = self.own.as_ref().ok_or_else(|| WebhookError::Certificate("none".to_owned()))?;
                Ok((state.serving.clone(), Some(state.bundle())))
            }
            Certificates::Secret { namespace, name, lifetimes } => {
                let state = self.shared(namespace, name, lifetimes).await?;
                Ok((state.serving.clone(), Some(state.bundle())))
            }
            Certificates::Files { certificate, key, ca } => {
                let identity = Identity { certificate: read(certificate).await?, key: read(key).await? };
                let ca = match ca {
                    Some(path) => Some(read(path).await?),
                    None => None,
                };
                Ok((identity, ca))
            }
        }
    }

    /// The state that replicas share, replaced where it is time: whoever is first writes.
    async fn shared(
        &self,
        namespace: &str,
        name: &str,
        lifetimes: &Lifetimes,
    ) -> Result<State, WebhookError> {
        let failed = |error: kube::Error| WebhookError::Secret {
            secret: format!("{namespace}/{name}"),
            message: crate::Error::from(error).to_string(),
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..10 {
            let found = api.get_opt(name).await.map_err(failed)?;
            let before = found.as_ref().and_then(from_secret);
            let next = State::next(before.as_ref(), &self.names, lifetimes, (self.clock)())?;
            let next = match (next, before) {
                (Some(next), _) => next,
                (None, Some(before)) => return Ok(before),
                (None, None) => return Err(WebhookError::Certificate("none could be made".to_owned())),
            };
            let mut secret = found.clone().unwrap_or_else(|| Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                ..Secret::default()
            });
            secret.data = Some(to_data(&next));
            let parameters = PostParams::default();
            let written = match &found {
                None => api.create(&parameters, &secret).await,
                // The resourceVersion that was read makes this fail when another replica was faster.
                Some(_) => api.replace(name, &parameters, &secret).await,
            };
            match written {
                Ok(_) => return Ok(next),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(WebhookError::Secret {
            secret: format!("{namespace}/{name}"),
            message: "somebody else keeps changing it".to_owned(),
        })
    }
}

/// Whether it may go away by itself.
fn is_passing(error: &WebhookError) -> bool {
    matches!(error, WebhookError::Secret { .. } | WebhookError::Install { .. } | WebhookError::File { .. })
}

async fn read(path: &Path) -> Result<String, WebhookError> {
    let path: PathBuf = path.to_owned();
    tokio::fs::read_to_string(&path).await.map_err(|source| WebhookError::File { path, source })
}

/// `tls.crt` and `tls.key` as everywhere; `ca.crt` and `ca.key` with all authorities, the oldest first.
fn to_data(state: &State) -> BTreeMap<String, ByteString> {
    let keys: String = state.authorities.iter().map(|authority| authority.key.as_str()).collect();
    [
        ("ca.crt", state.bundle()),
        ("ca.key", keys),
        ("tls.crt", state.serving.certificate.clone()),
        ("tls.key", state.serving.key.clone()),
    ]
    .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
    .into()
}

fn from_secret(secret: &Secret) -> Option<State> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let certificates = blocks(&text("ca.crt")?);
    let keys = blocks(&text("ca.key")?);
    if certificates.len() != keys.len() {
        return None;
    }
    let authorities =
        certificates.into_iter().zip(keys).map(|(certificate, key)| Identity { certificate, key }).collect();
    let serving = Identity { certificate: text("tls.crt")?, key: text("tls.key")? };
    Some(State { authorities, serving })
}

/// The blocks of a PEM file, each with its line's end.
fn blocks(pem: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut current = String::new();
    for line in pem.lines() {
        current.push_str(line);
        current.push('\n');
        if line.starts_with("-----END ") {
            blocks.push(std::mem::take(&mut current));
        }
    }
    blocks
}
