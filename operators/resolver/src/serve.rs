//! Accepting connections, and letting go of them without losing a request.

use crate::body::Answer;
use crate::directory::Directory;
use crate::forward::Forwarder;
use crate::internal::Internal;
use crate::line::{Client, Line};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::pool::{Pool, Tracked};
use crate::ports::{self, Behind, Door};
use crate::sniff::{self, Speaks};
use crate::target::Limits;
use crate::timer::{Dates, LOOKS};
use crate::workers::Workers;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The longest head of a request.
const HEAD: usize = 64 * 1024;
/// Requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 128;
/// How much of a body of HTTP/2 waits here while its request does.
const WINDOW: u32 = 64 * 1024;
/// How often a connection of HTTP/2 is asked whether its client is there, and how long it may
/// take to say so.
const PING: Duration = Duration::from_secs(20);

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
    let limits = Arc::new(Limits {
        per_service: options.pending_per_service,
        total: options.pending,
        per_backend: options.per_backend,
        pending: AtomicUsize::new(0),
    });
    let (delay, drain) = (options.shutdown_delay, options.drain);
    // Connections are told to end after the delay; what has not ended by then is cut off.
    let (closing, abort) = (CancellationToken::new(), CancellationToken::new());
    let server = Server { tasks, closing, abort, head: options.head };
    let _ends = (server.closing.clone().drop_guard(), server.abort.clone().drop_guard());
    let forwarder = || {
        Arc::new(Forwarder {
            options: options.clone(),
            directory: directory.clone(),
            limits: Arc::clone(&limits),
            metrics: Arc::clone(&metrics),
            pool: Pool::new(server.tasks.clone(), options.connect),
            tasks: server.tasks.clone(),
            abort: server.abort.clone(),
            home: Handle::current(),
        })
    };
    let answers = Arc::new(Internal {
        directory: directory.clone(),
        metrics: Arc::clone(&metrics),
        shutdown: shutdown.clone(),
    });
    let address = proxy.local_addr()?.ip();
    let own = &server;
    let questions = async move {
        let spawn = |stream, client| {
            own.tasks.spawn(own.clone().questions(stream, client, Arc::clone(&answers)));
        };
        own.take(&internal, spawn).await
    };
    let until_closed = async {
        shutdown.cancelled().await;
        tokio::time::sleep(delay).await;
    };
    let forwarders = (0..options.threads.get()).map(|_| forwarder()).collect();
    let mut workers = Workers::start(&server, forwarders)?;
    let hands = workers.hands();
    let shared = hands.clone().accept(proxy, Door::Shared);
    let owned = ports::keep(&directory, address, |listener, behind| {
        hands.clone().accept(listener, Door::Own(behind))
    });
    let result = tokio::select! {
        result = async { tokio::try_join!(shared, questions, owned) } => result.map(drop),
        () = until_closed => Ok(()),
        error = workers.failed() => Err(error),
    };
    server.close(drain).await;
    workers.join().await;
    result
}

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    pub(crate) abort: CancellationToken,
    head: Duration,
}

impl Server {
    /// The same with signs of its own that it is over: connections look at them all the time, and threads
    /// should not get in each other's way with that.
    pub(crate) fn of_one_thread(&self) -> Self {
        let (closing, abort) = (self.closing.child_token(), self.abort.child_token());
        Self { closing, abort, ..self.clone() }
    }

    /// Tells connections to end, and gives them the time for it.
    async fn close(&self, drain: Duration) {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "requests were still under way at the end of the drain");
        }
        self.abort.cancel();
    }

    /// Serves what comes in by a door.
    pub(crate) async fn accept(
        self,
        listener: TcpListener,
        door: Door,
        forwarder: Arc<Forwarder>,
    ) -> io::Result<()> {
        let spawn = |stream, client| match &door {
            Door::Shared => {
                self.tasks.spawn(self.clone().shared(stream, client, Arc::clone(&forwarder)));
            }
            Door::Own(behind) => {
                let (behind, forwarder) = (Arc::clone(behind), Arc::clone(&forwarder));
                self.tasks.spawn(self.clone().owned(stream, client, behind, forwarder));
            }
        };
        self.take(&listener, spawn).await
    }

    async fn take(&self, listener: &TcpListener, take: impl Fn(TcpStream, SocketAddr)) -> io::Result<()> {
        // Small answers must not wait for a full packet; what is accepted inherits this.
        SockRef::from(listener).set_tcp_nodelay(true)?;
        loop {
            match listener.accept().await {
                Ok((stream, client)) => take(stream, client),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    // Out of descriptors, or the client left: a moment helps in both cases.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// A connection on the port that all services share, where only HTTP says whose it is.
    async fn shared(self, stream: TcpStream, address: SocketAddr, forwarder: Arc<Forwarder>) {
        let (mut line, client) = Line::new(stream, address, Door::Shared);
        let speaks = self.until_closing(sniff::version(&mut line, self.head)).await;
        self.http(speaks, line, client, forwarder).await;
    }

    /// A connection on the port of one service.
    async fn owned(
        self,
        stream: TcpStream,
        address: SocketAddr,
        behind: Arc<Behind>,
        forwarder: Arc<Forwarder>,
    ) {
        let (mut line, client) = Line::new(stream, address, Door::Own(Arc::clone(&behind)));
        let speaks = self.until_closing(sniff::protocol(&mut line)).await;
        if speaks != Speaks::Other {
            return self.http(speaks, line, client, forwarder).await;
        }
        let Some(target) = forwarder.directory.get(&behind.service) else { return };
        let port = behind.port;
        let tunnel = forwarder.tunnel(line, client, target, port);
        let _ = self.abort.run_until_cancelled(tunnel).await;
    }

    async fn http(self, speaks: Speaks, line: Line, client: Client, forwarder: Arc<Forwarder>) {
        let both = Arc::new((forwarder, client));
        let handle = move |request| {
            let both = Arc::clone(&both);
            async move { both.0.handle(request, &both.1).await }
        };
        match speaks {
            Speaks::One => self.one(line, handle).await,
            Speaks::Two => self.two(line, handle).await,
            Speaks::Other | Speaks::Nothing => {}
        }
    }

    /// A connection on the internal port.
    async fn questions(self, stream: TcpStream, address: SocketAddr, answers: Arc<Internal>) {
        let (mut line, _) = Line::new(stream, address, Door::Shared);
        let speaks = self.until_closing(sniff::version(&mut line, self.head)).await;
        let handle = move |request: Request<Incoming>| std::future::ready(answers.handle(&request));
        match speaks {
            Speaks::One => self.one(line, handle).await,
            Speaks::Two => self.two(line, handle).await,
            Speaks::Other | Speaks::Nothing => {}
        }
    }

    /// What a connection speaks; nothing, once nobody waits for its first words any more.
    async fn until_closing(&self, sniffing: impl Future<Output = Speaks>) -> Speaks {
        self.closing.run_until_cancelled(sniffing).await.unwrap_or(Speaks::Nothing)
    }

    /// Serves HTTP/1.1.
    async fn one<F, T>(self, line: Line, handle: F)
    where
        F: Fn(Request<Incoming>) -> T + Send + 'static,
        T: Future<Output = Response<Answer>> + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.timer(Dates).header_read_timeout(self.head).max_buf_size(HEAD);
        let service = service_fn(move |request| {
            let answer = handle(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(line), service).with_upgrades());
        let mut closing = pin!(self.closing.cancelled());
        let mut look = pin!(tokio::time::sleep(self.head / LOOKS));
        let result = loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => break result,
                () = closing.as_mut() => {
                    connection.as_mut().graceful_shutdown();
                    match self.abort.run_until_cancelled(connection).await {
                        Some(result) => break result,
                        None => return,
                    }
                }
                () = look.as_mut() => look.as_mut().reset(Instant::now() + self.head / LOOKS),
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a connection ended");
        }
    }

    /// Serves HTTP/2.
    async fn two<F, T>(self, line: Line, handle: F)
    where
        F: Fn(Request<Incoming>) -> T + Send + 'static,
        T: Future<Output = Response<Answer>> + Send + 'static,
    {
        let mut builder = http2::Builder::new(Tracked(self.tasks.clone()));
        // No stream can use up the window of the connection: a held request with a body holds up
        // nobody else's.
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS)
            .max_send_buf_size(WINDOW as usize)
            .max_header_list_size(HEAD as u32)
            .enable_connect_protocol()
            // A client that vanished without a word gives its places up.
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let spoken = Arc::new(AtomicBool::new(false));
        let speaks = Arc::clone(&spoken);
        let service = service_fn(move |request| {
            speaks.store(true, Ordering::Relaxed);
            let answer = handle(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(line), service));
        let silent = async {
            tokio::time::sleep(self.head).await;
            if spoken.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let result = tokio::select! {
            biased;
            result = connection.as_mut() => result,
            () = silent => return,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match self.abort.run_until_cancelled(connection).await {
                    Some(result) => result,
                    None => return,
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected)
}
