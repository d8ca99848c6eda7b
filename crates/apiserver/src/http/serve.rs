//! The server on a socket: TLS, HTTP/1.1 and HTTP/2.

use std::{io, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Body, respond, route::Route};
use crate::{
    auth::{self, Authenticator},
    server::{Server, User},
    status::Failure,
};

/// A connection that has not said hello by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Requests at the same time; watches count only until they stream.
const IN_FLIGHT: usize = 600;
/// How long a request waits for its turn.
const QUEUED: Duration = Duration::from_secs(15);
/// How long a request that is no stream may take.
const REQUEST: Duration = Duration::from_secs(60);
/// Connections at the same time.
const CONNECTIONS: usize = 10_000;

/// The certificate that the server shows.
#[derive(Debug, Clone)]
pub struct ServingIdentity {
    /// The certificate and those that lead to its CA, in PEM.
    pub certificate_pem: String,
    /// Its key, in PEM.
    pub key_pem: String,
    /// The CA of client certificates, in PEM.
    pub client_ca_pem: String,
}

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A certificate or key does not fit.
    #[error("cannot use the serving certificate: {0}")]
    Identity(String),
    /// The socket failed.
    #[error("cannot accept connections: {0}")]
    Accept(#[from] io::Error),
}

impl Server {
    /// Serves on a listener until `shutdown`, then lets requests finish and ends watches.
    ///
    /// # Errors
    /// When the certificate does not fit, or the listener fails for good.
    pub async fn serve(
        &self,
        listener: TcpListener,
        identity: ServingIdentity,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(&identity)?));
        let turns = Arc::new(Semaphore::new(IN_FLIGHT));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let place = tokio::select! {
                () = shutdown.cancelled() => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let stream = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) if is_passing(&error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let (server, acceptor, turns, shutdown) =
                (self.clone(), acceptor.clone(), Arc::clone(&turns), shutdown.clone());
            connections.spawn(async move {
                connection(server, acceptor, stream, turns, shutdown).await;
                drop(place);
            });
        }
        drop(listener);
        let finished = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
        if finished.is_err() {
            connections.shutdown().await;
        }
        Ok(())
    }
}

/// Whether the listener may still work after this error.
fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected)
}

async fn connection(
    server: Server,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    turns: Arc<Semaphore>,
    shutdown: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(auth::certificate_user);
    let certificate = Arc::new(certificate);
    let streams_end = shutdown.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, turns, certificate) = (server.clone(), Arc::clone(&turns), Arc::clone(&certificate));
        let shutdown = streams_end.clone();
        async move {
            Ok::<_, std::convert::Infallible>(
                handle(&server, &shutdown, &turns, (*certificate).as_ref(), request).await,
            )
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "connection ended");
    }
}

async fn handle(
    server: &Server,
    shutdown: &CancellationToken,
    turns: &Semaphore,
    certificate: Option<&User>,
    request: Request<Incoming>,
) -> Response<Body> {
    let user = match who(server, certificate, &request) {
        Ok(user) => user,
        Err(failure) => return respond::failure(&failure),
    };
    let Ok(Ok(_turn)) = timeout(QUEUED, turns.acquire()).await else {
        return respond::failure(&Failure::too_many_requests("Too many requests, please try again later."));
    };
    let answered = timeout(REQUEST, super::answer(&server.engine, &user, request, shutdown)).await;
    answered.unwrap_or_else(|_| {
        respond::failure(&Failure::timeout("request did not complete within the allotted time"))
    })
}

/// Who sends a request: by certificate, by token, or nobody for the few paths that are open.
fn who(server: &Server, certificate: Option<&User>, request: &Request<Incoming>) -> Result<User, Failure> {
    let now = (server.engine.options.clock)();
    if let Some(token) = auth::bearer(request.headers()) {
        let authenticator: Option<&Arc<Authenticator>> = server.engine.options.authenticator.as_ref();
        return authenticator
            .and_then(|authenticator| authenticator.token(token, now))
            .ok_or_else(Failure::unauthorized);
    }
    if let Some(user) = certificate {
        return Ok(user.clone());
    }
    match Route::parse(request.uri().path()) {
        Route::Health { .. } | Route::Version => {
            Ok(User { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] })
        }
        _ => Err(Failure::unauthorized()),
    }
}

fn tls_config(identity: &ServingIdentity) -> Result<rustls::ServerConfig, ServeError> {
    let bad = |error: &dyn std::fmt::Display| ServeError::Identity(error.to_string());
    let certificates = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(&error))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|error| bad(&error))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(identity.client_ca_pem.as_bytes()) {
        roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| bad(&error))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .map_err(|error| bad(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
