//! When a request is sent again, and when it must not be.

mod support;

use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman_resolver::{Mode, Options};
use support::{HOST, Resolver, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A pod that answers the first request of each connection, and closes on the second, unanswered.
async fn forgetful(seen: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                for number in 0..2 {
                    if !stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                        return;
                    }
                    seen.fetch_add(1, Ordering::SeqCst);
                    if number == 0 {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    }
                }
            });
        }
    });
    address
}

/// Connections to pods are kept by each thread for itself.
fn one_thread(options: &mut Options) {
    options.threads = NonZeroUsize::MIN;
}

fn request(method: &str) -> Request<String> {
    Request::builder()
        .method(method)
        .uri("/")
        .header("host", HOST)
        .body("body".to_owned())
        .expect("a request")
}

#[tokio::test]
async fn a_request_that_may_have_been_executed_is_sent_again_only_if_twice_is_like_once() {
    for (method, status, times) in
        [("GET", 200, 3), ("PUT", 200, 3), ("DELETE", 200, 3), ("POST", 502, 2), ("PATCH", 502, 2)]
    {
        let resolver = Resolver::start(one_thread).await;
        let seen = Arc::new(AtomicUsize::new(0));
        resolver.set(&[forgetful(Arc::clone(&seen)).await], Mode::Proxy);
        assert_eq!(send(resolver.address, request("GET")).await.map(|(status, _)| status), Ok(200));
        let second = send(resolver.address, request(method)).await;
        assert_eq!(second.map(|(status, _)| status), Ok(status), "{method}");
        assert_eq!(seen.load(Ordering::SeqCst), times, "{method}");
    }
}

/// A pod of HTTP/2 that refuses the first stream and answers the others.
async fn refusing(seen: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let number = seen.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        let mut body = request.into_body();
                        let mut length = 0;
                        while let Some(Ok(data)) = body.data().await {
                            length += data.len();
                            let _ = body.flow_control().release_capacity(data.len());
                        }
                        if number == 0 {
                            return respond.send_reset(h2::Reason::REFUSED_STREAM);
                        }
                        if let Ok(mut answer) = respond.send_response(hyper::Response::new(()), false) {
                            let _ = answer.send_data(length.to_string().into(), true);
                        }
                    });
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_refused_stream_starts_over_with_its_body_unless_that_is_too_long() {
    for (length, status) in [(0, 200), (5000, 200), (200_000, 502)] {
        let resolver = Resolver::start(one_thread).await;
        let seen = Arc::new(AtomicUsize::new(0));
        resolver.set(&[refusing(Arc::clone(&seen)).await], Mode::Proxy);
        let stream = TcpStream::connect(resolver.address).await.expect("connected");
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::post(format!("http://{HOST}/")).body("x".repeat(length)).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{length}");
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body").to_bytes();
        if status == 200 {
            assert_eq!(body, length.to_string());
            assert_eq!(seen.load(Ordering::SeqCst), 2);
        }
    }
}
