//! Clients of every kind, which accept a broken connection only where a resolver was killed.

use crate::service::Service;
use crate::{World, lock};
use futures::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Request;
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long one request may take, whatever happens meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a request: an answer, or a connection that broke.
type Came = Result<(), String>;

/// Starts the clients of a service.
pub(crate) fn start(load: &mut JoinSet<()>, address: SocketAddr, service: &Arc<Service>, world: &Arc<World>) {
    for number in 0..3 {
        let (world, service) = (Arc::clone(world), Arc::clone(service));
        load.spawn(async move {
            let mut count = 0;
            while !world.is_over() {
                count += 1;
                let id = format!("{}-{number}-{count}", service.name);
                match (number, count % 4) {
                    (0, _) => {
                        insist(&world, &id, || post(address, &service, &id)).await;
                    }
                    (1, 0 | 1) => insist(&world, &id, || socket(address, &service)).await,
                    (1, _) => insist(&world, &id, || page(address, &service)).await,
                    (_, 0) => insist(&world, &id, || stream(address, &service)).await,
                    (_, _) => insist(&world, &id, || post_two(address, &service, &id)).await,
                }
                world.pause(5, 150).await;
            }
        });
    }
}

/// Asks until there is an answer. A connection may break only where a resolver was killed, and
/// what a pod has executed is not asked for again.
async fn insist<F, T>(world: &World, id: &str, ask: F)
where
    F: Fn() -> T,
    T: Future<Output = Came>,
{
    loop {
        let came = tokio::time::timeout(PATIENCE, ask()).await;
        let Err(why) = came.unwrap_or_else(|_| panic!("{id} was not answered in {PATIENCE:?}")) else {
            world.answered.fetch_add(1, Ordering::Relaxed);
            return;
        };
        assert!(world.recently_killed(), "{id} was lost although no resolver was killed: {why}");
        world.asked_again.fetch_add(1, Ordering::Relaxed);
        if lock(&world.done).contains_key(id) {
            return;
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

async fn one(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<String, String> {
    let stream = connect(address).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string());
    let result = match response {
        Ok(response) => read(response).await,
        Err(why) => Err(why),
    };
    driver.abort();
    result
}

async fn read(response: hyper::Response<hyper::body::Incoming>) -> Result<String, String> {
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(status.is_success(), "{status}: {text}");
    Ok(text)
}

async fn page(address: SocketAddr, service: &Service) -> Came {
    let request =
        Request::get("/page").header("host", service.host()).body(Full::default()).expect("a request");
    assert_eq!(one(address, request).await?, "page");
    Ok(())
}

async fn post(address: SocketAddr, service: &Service, id: &str) -> Came {
    let body = Full::new(Bytes::from(vec![b'x'; 2000]));
    let request =
        Request::post(format!("/do/{id}")).header("host", service.host()).body(body).expect("a request");
    assert_eq!(one(address, request).await?, format!("{id} 2000"));
    Ok(())
}

type Pieces =
    StreamBody<std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

async fn two(
    address: SocketAddr,
    request: Request<Pieces>,
) -> Result<hyper::Response<hyper::body::Incoming>, String> {
    let stream = connect(address).await?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

fn pieces(count: usize, gap: Duration, last: &'static str) -> Pieces {
    let data = futures::stream::iter(0..count).then(move |_| async move {
        tokio::time::sleep(gap).await;
        Ok(Frame::data(Bytes::from_static(b"piece")))
    });
    let trailers = hyper::HeaderMap::from_iter([(
        hyper::header::HeaderName::from_static("said"),
        hyper::header::HeaderValue::from_static(last),
    )]);
    let end = futures::stream::iter([Ok(Frame::trailers(trailers))]);
    StreamBody::new(Box::pin(data.chain(end)))
}

async fn post_two(address: SocketAddr, service: &Service, id: &str) -> Came {
    let uri = format!("http://{}/do/{id}", service.host());
    let request = Request::post(uri).body(pieces(2, Duration::ZERO, "all")).expect("a request");
    assert_eq!(read(two(address, request).await?).await?, format!("{id} 10"));
    Ok(())
}

/// A stream both ways, with trailers, that takes its time.
async fn stream(address: SocketAddr, service: &Service) -> Came {
    let uri = format!("http://{}/stream", service.host());
    let request = Request::post(uri).body(pieces(10, Duration::from_millis(30), "done")).expect("a request");
    let response = two(address, request).await?;
    assert!(response.status().is_success(), "{}", response.status());
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
    assert_eq!(body.trailers().and_then(|trailers| trailers.get("said")).expect("trailers"), "done");
    assert_eq!(body.to_bytes().len(), 50);
    Ok(())
}

/// A connection that leaves HTTP, as WebSocket does.
async fn socket(address: SocketAddr, service: &Service) -> Came {
    let mut stream = connect(address).await?;
    let broke = |error: std::io::Error| error.to_string();
    let head = format!(
        "GET /socket HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        service.host()
    );
    stream.write_all(head.as_bytes()).await.map_err(broke)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.map_err(broke)?);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    for number in 0..5 {
        let message = format!("message {number}");
        stream.write_all(message.as_bytes()).await.map_err(broke)?;
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).await.map_err(broke)?;
        assert_eq!(back, message.as_bytes());
    }
    Ok(())
}
