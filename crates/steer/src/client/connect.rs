//! A connection to an API server, and requests over it as plain JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use http_body_util::BodyExt as _;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

use crate::cli::{ClientArgs, ConnectionArgs};

/// Where `steer up` puts its kubeconfig unless told otherwise.
const LOCAL_KUBECONFIG: &str = ".steersman/kubeconfig";

/// A connection to an API server.
pub(crate) struct Connection {
    /// The client, for those who want typed access.
    pub(crate) client: Client,
    /// The namespace that commands are about.
    pub(crate) namespace: String,
    server: String,
}

/// A request that the server answered with a `Status`, in kubectl's words.
#[derive(Debug, thiserror::Error)]
#[error("error from server ({reason}): {message}")]
pub(crate) struct Refused {
    /// The HTTP code.
    pub(crate) code: u16,
    reason: String,
    message: String,
}

impl Connection {
    /// Connects as the arguments say. Nothing is sent yet.
    pub(crate) async fn open(args: &ClientArgs) -> anyhow::Result<Self> {
        let config = load_config(&args.connection).await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
        Ok(Self { client, namespace, server })
    }

    /// GETs a path as JSON.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request("GET", path, "application/json", None).await
    }

    /// Sends a request and reads the JSON of the answer.
    ///
    /// `accept` is what the answer should be; `body` is a content type and bytes.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> anyhow::Result<Value> {
        let mut request = http::Request::builder().method(method).uri(path).header("accept", accept);
        let bytes = match body {
            Some((content_type, bytes)) => {
                request = request.header("content-type", content_type);
                bytes
            }
            None => Vec::new(),
        };
        let request = request.body(Body::from(bytes))?;
        let response = self.client.send(request).await.map_err(|e| self.unreachable(e))?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| self.unreachable(e))?.to_bytes();
        let value: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).trim().to_owned()));
        if status.is_success() { Ok(value) } else { Err(refused(status.as_u16(), &value).into()) }
    }

    /// Says that the server did not answer, and what to do about it.
    pub(crate) fn unreachable(&self, error: impl std::error::Error + Send + Sync + 'static) -> anyhow::Error {
        anyhow::Error::new(error)
            .context(format!("no answer from {}: is it running? (`steer up` starts one here)", self.server))
    }
}

/// Turns the body of a failed request into an error.
pub(crate) fn refused(code: u16, body: &Value) -> Refused {
    let text = |field: &str| body.get(field).and_then(Value::as_str).filter(|s| !s.is_empty());
    let message = text("message")
        .or_else(|| body.as_str())
        .map_or_else(|| format!("the server answered with code {code}"), str::to_owned);
    Refused { code, reason: text("reason").unwrap_or("Unknown").to_owned(), message }
}

/// Whether the server said that there is no such thing.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 404)
}

/// Loads the configuration that the arguments, the environment or this folder name.
pub(crate) async fn load_config(args: &ConnectionArgs) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = choose_kubeconfig(args) {
        let kubeconfig = Kubeconfig::read_from(&path)
            .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
        return Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .with_context(|| format!("the kubeconfig {} cannot be used", path.display()));
    }
    let found = if args.context.is_some() {
        Config::from_kubeconfig(&options).await.map_err(anyhow::Error::new)
    } else {
        Config::infer().await.map_err(anyhow::Error::new)
    };
    found.map_err(|e| {
        anyhow!(
            "no cluster to talk to: start one with `steer up`, or name a kubeconfig with --kubeconfig or KUBECONFIG ({e})"
        )
    })
}

/// The file that the arguments or this folder name; `None` leaves it to the usual places.
fn choose_kubeconfig(args: &ConnectionArgs) -> Option<PathBuf> {
    if let Some(path) = &args.kubeconfig {
        return Some(path.clone());
    }
    let local = Path::new(LOCAL_KUBECONFIG);
    (std::env::var_os("KUBECONFIG").is_none() && local.exists()).then(|| local.to_owned())
}
