//! The REST face: plain JSON over the same objects that `kubectl` sees.
//!
//! ```text
//!   connection ─▶ guard (who may ask) ─▶ router ─▶ resource_types, resources ─▶ API server
//! ```

mod answer;
mod docs;
mod fields;
mod guard;
mod openapi;
mod resource_types;
mod resources;
mod router;
mod store;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use steersman::{CancellationToken, Clock, accept, system_clock};
use tokio::net::TcpListener;

use crate::action::Registry;
use crate::history::History;
use crate::ids::Ids;
use crate::input::Inputs;
use crate::input::intake::Intake;
use crate::schema::Schemas;
use guard::Guard;

/// Connections at the same time.
const CONNECTIONS: usize = 512;
/// How long the head of a request may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the REST face needs.
#[derive(Clone)]
pub struct RestOptions {
    /// The plugins that resources may name.
    pub plugins: Registry,
    /// Where attempts are recorded.
    pub history: History,
    /// The namespace of the resources and of the counter of ids. `default`.
    pub namespace: String,
    /// Webhooks that others may call. None.
    pub inputs: Inputs,
    /// Who may ask. Programs on this machine by default.
    pub access: Access,
    /// Wall time. That of the machine.
    pub clock: Clock,
}

/// Who may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Programs on this machine: served on loopback only, and web pages of others are refused.
    #[default]
    Local,
    /// Whoever reaches the address under a name of their own machine, but no web page of others:
    /// for a container whose port is published on loopback.
    Published,
    /// Whoever sends this token as `Authorization: Bearer`.
    Token(String),
    /// Everybody who reaches the address.
    Everybody,
}

impl Access {
    /// Whether this is enough protection for an address.
    ///
    /// # Errors
    /// When others can reach the address and nothing says who may.
    pub fn check(&self, address: SocketAddr) -> Result<(), RestError> {
        match self {
            Self::Local if !address.ip().is_loopback() => Err(RestError::Unprotected(address)),
            _ => Ok(()),
        }
    }
}

impl RestOptions {
    /// Options with defaults for everything else.
    pub fn new(plugins: Registry, history: History) -> Self {
        Self {
            plugins,
            history,
            inputs: Inputs::default(),
            namespace: "default".into(),
            access: Access::Local,
            clock: system_clock(),
        }
    }
}

impl std::fmt::Debug for RestOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestOptions").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why the REST face cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// The address can be reached from elsewhere, and nothing says who may.
    #[error(
        "{0} can be reached from other machines, so the REST API needs a token there; set one, listen on 127.0.0.1, or allow everybody explicitly"
    )]
    Unprotected(SocketAddr),
    /// The socket cannot be used.
    #[error("the REST API cannot be served: {0}")]
    Socket(#[from] std::io::Error),
}

/// Serves the REST API on a listener until `stop` is cancelled; requests under way are finished.
///
/// # Errors
/// When the address needs more protection than the options give, or the socket is unusable.
pub async fn rest(
    client: Client,
    options: RestOptions,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), RestError> {
    let address = listener.local_addr()?;
    options.access.check(address)?;
    let intake =
        Intake::new(&client, &options.namespace, options.plugins.clone(), Clock::clone(&options.clock));
    let face = Arc::new(Face {
        ids: Ids::new(client.clone(), &options.namespace),
        guard: Guard::new(options.access),
        plugins: options.plugins,
        history: options.history,
        namespace: options.namespace,
        clock: options.clock,
        schemas: Schemas::default(),
        inputs: options.inputs,
        intake,
        client,
    });
    serve(face, listener, stop).await;
    Ok(())
}

/// Everything that requests share.
pub(crate) struct Face {
    client: Client,
    ids: Ids,
    plugins: Registry,
    history: History,
    namespace: String,
    guard: Guard,
    clock: Clock,
    schemas: Schemas,
    inputs: Inputs,
    intake: Intake,
}

async fn serve(face: Arc<Face>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, CONNECTIONS, &stop, |stream| {
        let (face, stop) = (Arc::clone(&face), stop.clone());
        async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let face = Arc::clone(&face);
                async move { Ok::<_, Infallible>(router::answer(&face, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            // Nobody is waited for longer than a request may take.
            let _ = tokio::time::timeout(PATIENCE, connection).await;
        }
    })
    .await;
}
