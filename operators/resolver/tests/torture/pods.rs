//! Pods: execute requests by id, echo streams and tunnels, and leave in order.

use crate::{World, lock};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a pod takes connections after it was told to end, as pods do that wait in `preStop`.
const LAME_DUCK: Duration = Duration::from_secs(2);

/// A running pod.
pub(crate) struct Pod {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
}

impl Pod {
    pub(crate) async fn start(world: &Arc<World>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, Arc::clone(world), stop.clone()));
        Self { address, stop }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, world: Arc<World>, stop: CancellationToken) {
    let ending = async {
        stop.cancelled().await;
        tokio::time::sleep(LAME_DUCK).await;
    };
    tokio::pin!(ending);
    let closing = CancellationToken::new();
    let _closes = closing.clone().drop_guard();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.expect("accepted").0,
            () = &mut ending => return,
        };
        let (world, closing) = (Arc::clone(&world), closing.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let world = Arc::clone(&world);
                async move { Ok::<_, Infallible>(answer(request, &world).await) }
            });
            let server = auto::Builder::new(TokioExecutor::new());
            let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
}

async fn answer(
    mut request: Request<Incoming>,
    world: &Arc<World>,
) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let path = request.uri().path().to_owned();
    let text = |text: String| Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    if let Some(id) = path.strip_prefix("/do/") {
        let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
        *lock(&world.done).entry(id.to_owned()).or_default() += 1;
        world.pause(0, 20).await;
        return Response::new(text(format!("{id} {length}")));
    }
    match path.as_str() {
        // A stream both ways, as in gRPC.
        "/stream" => Response::new(request.into_body().boxed_unsync()),
        "/socket" => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let Ok(upgraded) = upgrade.await else { return };
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
            let head =
                Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
            head.body(text(String::new())).expect("a response")
        }
        _ => Response::new(text("page".to_owned())),
    }
}
