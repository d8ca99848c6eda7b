//! The pod behind both proxies.

use crate::Outcome;
use crate::proxy::{Child, spawn_self};
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

/// A pod in a process of its own.
pub(crate) struct Pod {
    pub(crate) address: SocketAddr,
    _child: Child,
}

impl Pod {
    pub(crate) fn start(core: &str) -> Outcome<Self> {
        let (child, addresses) = spawn_self(core, &["pod"])?;
        Ok(Self { address: addresses[0], _child: child })
    }
}

/// Answers `/1m` with 1 MiB, `/up` with the length of the body, `/events` with events, and
/// everything else with 256 bytes.
pub(crate) fn run() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http2().max_concurrent_streams(1000);
                let service = service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    static MEBIBYTE: [u8; 1 << 20] = [b'x'; 1 << 20];
    match request.uri().path() {
        "/1m" => Response::new(Full::new(Bytes::from_static(&MEBIBYTE)).boxed_unsync()),
        "/up" => {
            let mut length = 0;
            let mut body = request.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                length += frame.data_ref().map_or(0, Bytes::len);
            }
            Response::new(Full::new(Bytes::from(length.to_string())).boxed_unsync())
        }
        "/events" => {
            let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"data: first\n\n")))]);
            let later = futures::stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(Frame::data(Bytes::from_static(b"data: last\n\n")))
            });
            let mut response = Response::new(StreamBody::new(first.chain(later)).boxed_unsync());
            let kind = hyper::header::HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
            response
        }
        _ => Response::new(Full::new(Bytes::from_static(&MEBIBYTE[..256])).boxed_unsync()),
    }
}
