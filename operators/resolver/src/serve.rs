//! Accepting connections, and letting go of them without losing a request.

use crate::body::Answer;
use crate::directory::Directory;
use crate::forward::Forwarder;
use crate::internal::Internal;
use crate::line::{Client, Line};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::pool::{Pool, Tracked};
use crate::target::Limits;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves until `shutdown` is cancelled and everything under way has ended.
///
/// Requests come in on `proxy`; `/healthz`, `/readyz`, `/metrics`, `/queue-status`,
/// `/crd-cache-status` and `/activity` are answered on `internal`. Once `shutdown` is cancelled,
/// `/readyz` fails, new requests are still taken for [`Options::shutdown_delay`], and those that
/// are held or run get [`Options::drain`] to end.
///
/// # Errors
/// When a listener cannot be used any more.
///
/// # Example
/// ```no_run
/// # async fn start() -> std::io::Result<()> {
/// use std::sync::Arc;
/// use steersman_resolver::{Directory, HttpWake, Options, serve};
/// use tokio::net::TcpListener;
///
/// let options = Options::new(Arc::new(HttpWake::new("elasti-operator-controller-service:8013", None)));
/// let (proxy, internal) = (TcpListener::bind("0.0.0.0:8012").await?, TcpListener::bind("0.0.0.0:8013").await?);
/// serve(proxy, internal, Directory::new(), options, Default::default()).await
/// # }
/// ```
pub async fn serve(
    proxy: TcpListener,
    internal: TcpListener,
    directory: Directory,
    options: Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let tasks = TaskTracker::new();
    let metrics = Arc::new(Metrics::default());
    let limits = Limits {
        per_service: options.pending_per_service,
        total: options.pending,
        per_backend: options.per_backend,
        pending: AtomicUsize::new(0),
    };
    let (delay, drain, head) = (options.shutdown_delay, options.drain, options.head);
    let pool = Pool::new(tasks.clone(), options.connect);
    // Connections are told to end after the delay; what has not ended by then is cut off.
    let (closing, abort) = (CancellationToken::new(), CancellationToken::new());
    let forwarder = Arc::new(Forwarder {
        options,
        directory: directory.clone(),
        limits: Arc::new(limits),
        metrics: Arc::clone(&metrics),
        pool: pool.clone(),
        tasks: tasks.clone(),
        abort: abort.clone(),
    });
    let answers = Arc::new(Internal { directory, metrics, shutdown: shutdown.clone() });
    let server = Server { tasks: tasks.clone(), closing: closing.clone(), abort: abort.clone(), head };
    let forward = move |request, client: Client| {
        let forwarder = Arc::clone(&forwarder);
        async move { forwarder.handle(request, &client).await }
    };
    let answer = move |request, _: Client| {
        let answers = Arc::clone(&answers);
        async move { answers.handle::<Incoming>(&request) }
    };
    let accepting =
        async { tokio::try_join!(server.accept(&proxy, forward), server.accept(&internal, answer)) };
    let until_closed = async {
        shutdown.cancelled().await;
        tokio::time::sleep(delay).await;
    };
    let result = tokio::select! {
        result = accepting => result.map(drop),
        () = until_closed => Ok(()),
    };
    drop((proxy, internal));
    closing.cancel();
    tasks.close();
    pool.clear();
    if tokio::time::timeout(drain, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "requests were still under way at the end of the drain");
    }
    abort.cancel();
    result
}

struct Server {
    tasks: TaskTracker,
    closing: CancellationToken,
    abort: CancellationToken,
    head: Duration,
}

impl Server {
    async fn accept<F, T>(&self, listener: &TcpListener, handle: F) -> io::Result<()>
    where
        F: Fn(Request<Incoming>, Client) -> T + Clone + Send + 'static,
        T: Future<Output = Response<Answer>> + Send + 'static,
    {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.connection(stream, client, handle.clone()),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    // Out of descriptors, or the client left: a moment helps in both cases.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn connection<F, T>(&self, stream: TcpStream, address: SocketAddr, handle: F)
    where
        F: Fn(Request<Incoming>, Client) -> T + Clone + Send + 'static,
        T: Future<Output = Response<Answer>> + Send + 'static,
    {
        let (closing, abort, head) = (self.closing.clone(), self.abort.clone(), self.head);
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            // Small answers must not wait for a full packet.
            let _ = stream.set_nodelay(true);
            let (line, client) = Line::new(stream, address);
            let mut builder = auto::Builder::new(Tracked(tasks));
            builder.http1().timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(64 * 1024);
            builder.http2().timer(TokioTimer::new()).adaptive_window(true).enable_connect_protocol();
            let service = service_fn(move |request| {
                let answer = handle(request, client.clone());
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(line), service);
            tokio::pin!(connection);
            let result = tokio::select! {
                result = connection.as_mut() => result,
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        result = connection.as_mut() => result,
                        () = abort.cancelled() => return,
                    }
                }
            };
            if let Err(error) = result {
                tracing::debug!(client = %address, %error, "a connection ended");
            }
        });
    }
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected)
}
