//! The resolver between real clients and real pods, on the loopback interface.

mod support;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::ext::Protocol;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use steersman_resolver::{Mode, Pattern, Probe};
use support::{Calls, HOST, PATIENCE, Resolver, echo, get, pod, send, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_thousand_held_requests_are_all_answered_after_one_wake() {
    let resolver = Resolver::start(|_| {}).await;
    let pods = [echo().await, echo().await];
    let mut requests = JoinSet::new();
    for number in 0..1000 {
        requests.spawn(send(resolver.address, get(&format!("/{number}"))));
    }
    resolver.wait_pending(1000).await;
    until("a wake-up call", || resolver.calls.made.load(Ordering::SeqCst) > 0).await;
    assert_eq!(resolver.calls.made.load(Ordering::SeqCst), 1, "one call for all of them");
    resolver.set(&pods, Mode::Proxy);
    let mut answered = 0;
    while let Some(answer) = requests.join_next().await {
        let (status, _) = answer.expect("no panic").expect("an answer");
        answered += usize::from(status == 200);
    }
    assert_eq!((answered, resolver.pending()), (1000, 0));
}

#[tokio::test]
async fn the_first_byte_follows_readiness_at_once() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = echo().await;
    let request = tokio::spawn(send(resolver.address, get("/")));
    resolver.wait_pending(1).await;
    let ready = Instant::now();
    resolver.set(&[pod], Mode::Proxy);
    request.await.expect("no panic").expect("an answer");
    // KubeElasti looks every three seconds; a loaded test machine gets some slack.
    assert!(ready.elapsed() < Duration::from_millis(500), "{:?}", ready.elapsed());
}

#[tokio::test]
async fn wake_up_calls_are_repeated_until_one_gets_through() {
    let calls = Calls { fail_first: 2, ..Calls::default() };
    let resolver = Resolver::with(calls, |_| {}).await;
    let request = tokio::spawn(send(resolver.address, get("/")));
    until("a third call", || resolver.calls.made.load(Ordering::SeqCst) == 3).await;
    resolver.set(&[echo().await], Mode::Proxy);
    assert_eq!(request.await.expect("no panic").expect("an answer").0, 200);
}

#[tokio::test]
async fn no_request_is_lost_or_done_twice_over_many_flips() {
    let resolver = Resolver::start(|_| {}).await;
    let done = Arc::new(std::sync::Mutex::new(std::collections::HashMap::<String, usize>::new()));
    let mut pods = Vec::new();
    for _ in 0..3 {
        let done = Arc::clone(&done);
        pods.push(
            pod(move |request: Request<hyper::body::Incoming>| {
                let done = Arc::clone(&done);
                async move {
                    let id = request.uri().path().to_owned();
                    let _ = request.into_body().collect().await;
                    *done.lock().expect("no panic").entry(id).or_default() += 1;
                    Response::new(Full::new(Bytes::from_static(b"done")))
                }
            })
            .await,
        );
    }
    let mut clients = JoinSet::new();
    for client in 0..16 {
        let address = resolver.address;
        clients.spawn(async move {
            for number in 0..50 {
                let request = Request::post(format!("/{client}-{number}"))
                    .header("host", HOST)
                    .body(Full::new(Bytes::from_static(b"once")))
                    .expect("a request");
                assert_eq!(send(address, request).await, Ok((200, "done".to_owned())));
            }
        });
    }
    let mut flip = 0_usize;
    while !clients.is_empty() {
        flip += 1;
        match flip % 4 {
            0 => resolver.sleep(),
            1 => resolver.set(&pods[..1], Mode::Proxy),
            2 => resolver.set(&pods, Mode::Serve),
            _ => resolver.set(&pods[1..], Mode::Proxy),
        }
        tokio::select! {
            done = clients.join_next() => {
                if let Some(done) = done {
                    done.expect("every request of this client was answered");
                }
            }
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
    }
    let done = done.lock().expect("no panic");
    assert_eq!(done.len(), 16 * 50);
    assert!(done.values().all(|times| *times == 1), "nothing was done twice");
}

#[tokio::test]
async fn a_slow_body_is_not_read_while_held_and_arrives_whole() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = echo().await;
    let mut client = TcpStream::connect(resolver.address).await.expect("connected");
    let head = format!(
        "POST /up HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 3000000\r\nexpect: 100-continue\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.expect("written");
    resolver.wait_pending(1).await;
    let mut early = [0; 1];
    let nothing = tokio::time::timeout(Duration::from_millis(30), client.peek(&mut early)).await;
    assert!(nothing.is_err(), "no 100 Continue while nobody takes the body");
    resolver.set(&[pod], Mode::Proxy);
    let mut continued = [0; 25];
    client.read_exact(&mut continued).await.expect("told to go on");
    assert_eq!(&continued, b"HTTP/1.1 100 Continue\r\n\r\n");
    for _ in 0..30 {
        client.write_all(&[b'x'; 100_000]).await.expect("written");
        tokio::task::yield_now().await;
    }
    let mut answer = vec![0; 4096];
    let mut text = String::new();
    while !text.ends_with("/up 3000000") {
        let read =
            tokio::time::timeout(PATIENCE, client.read(&mut answer)).await.expect("in time").expect("read");
        assert!(read > 0, "the whole answer, not only {text}");
        text.push_str(&String::from_utf8_lossy(&answer[..read]));
    }
}

#[tokio::test]
async fn clients_that_leave_free_their_places_with_and_without_a_body() {
    let resolver = Resolver::start(|options| options.pending_per_service = 4).await;
    let heads = [
        format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 5\r\n\r\nhello"),
        format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 500000\r\n\r\nhello"),
    ];
    for head in heads {
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = TcpStream::connect(resolver.address).await.expect("connected");
            client.write_all(head.as_bytes()).await.expect("written");
            clients.push(client);
        }
        resolver.wait_pending(4).await;
        drop(clients);
        resolver.wait_pending(0).await;
    }
}

#[tokio::test]
async fn a_full_queue_is_503_with_a_hint_and_a_long_wait_504() {
    let resolver = Resolver::start(|options| {
        options.pending_per_service = 1;
        options.hold = Duration::from_millis(300);
    })
    .await;
    let first = tokio::spawn(send(resolver.address, get("/")));
    resolver.wait_pending(1).await;
    let mut second = TcpStream::connect(resolver.address).await.expect("connected");
    second.write_all(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes()).await.expect("written");
    let mut answer = vec![0; 1024];
    let read = second.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    let (status, body) = first.await.expect("no panic").expect("an answer");
    assert_eq!(status, 504);
    assert!(body.contains("no pod of shop/web became ready within 300ms"), "{body}");
}

#[tokio::test]
async fn only_known_services_are_reached() {
    let resolver = Resolver::start(|_| {}).await;
    resolver.set(&[echo().await], Mode::Proxy);
    for (host, expected) in [
        ("web", 200),
        ("web:80", 200),
        ("web.shop", 200),
        ("kubernetes.default.svc", 404),
        ("127.0.0.1", 404),
        ("web.other", 404),
        ("elasti-web-pvt-1.shop", 404),
    ] {
        let request = Request::get("/")
            .header("host", host)
            .header("x-envoy-decorator-operation", "kubernetes.default.svc:443/*")
            .body(Full::<Bytes>::default())
            .expect("a request");
        assert_eq!(send(resolver.address, request).await.expect("an answer").0, expected, "{host}");
    }
}

#[tokio::test]
async fn events_are_streamed_as_they_come() {
    let resolver = Resolver::start(|_| {}).await;
    let (events, stream) = tokio::sync::mpsc::channel::<&'static str>(1);
    let stream = Arc::new(tokio::sync::Mutex::new(Some(stream)));
    let pod = pod(move |_| {
        let stream = Arc::clone(&stream);
        async move {
            let stream = stream.lock().await.take().expect("asked once");
            let frames = futures_stream(stream);
            Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)))
        }
    })
    .await;
    resolver.set(&[pod], Mode::Proxy);
    let mut client = TcpStream::connect(resolver.address).await.expect("connected");
    client.write_all(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes()).await.expect("written");
    let mut text = String::new();
    let mut buffer = [0; 1024];
    for event in ["one", "two", "three"] {
        events.send(event).await.expect("the pod listens");
        while !text.contains(event) {
            let read = tokio::time::timeout(PATIENCE, client.read(&mut buffer))
                .await
                .expect("at once")
                .expect("read");
            assert!(read > 0);
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
}

/// A stream of frames from a channel.
fn futures_stream(
    mut channel: tokio::sync::mpsc::Receiver<&'static str>,
) -> impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    futures::stream::poll_fn(move |cx| {
        channel
            .poll_recv(cx)
            .map(|event| event.map(|event| Ok(Frame::data(Bytes::from_static(event.as_bytes())))))
    })
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = pod(|mut request: Request<hyper::body::Incoming>| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let upgraded = upgrade.await.expect("upgraded");
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "yes")
            .body(Full::<Bytes>::default())
            .expect("a response")
    })
    .await;
    let mut client = TcpStream::connect(resolver.address).await.expect("connected");
    let head = format!(
        "GET /chat HTTP/1.1\r\nhost: {HOST}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.expect("written");
    resolver.wait_pending(1).await;
    resolver.set(&[pod], Mode::Proxy);
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains("\r\n\r\n") {
        let read = client.read(&mut buffer).await.expect("read");
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(text.starts_with("HTTP/1.1 101") && text.contains("upgrade: websocket"), "{text}");
    assert!(text.contains("sec-websocket-accept: yes"), "{text}");
    for message in ["ping", "pong"] {
        client.write_all(message.as_bytes()).await.expect("written");
        let mut back = [0; 4];
        client.read_exact(&mut back).await.expect("echoed");
        assert_eq!(&back, message.as_bytes());
    }
}

#[tokio::test]
async fn http_2_is_held_too_and_its_trailers_arrive() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = pod(|request| async move {
        assert_eq!(request.version(), hyper::Version::HTTP_2);
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        Response::new(
            Full::new(Bytes::from_static(b"message"))
                .with_trailers(async move { Some(Ok(trailers)) })
                .boxed_unsync(),
        )
    })
    .await;
    let stream = TcpStream::connect(resolver.address).await.expect("connected");
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("h2");
    tokio::spawn(connection);
    let mut calls = JoinSet::new();
    for _ in 0..32 {
        let mut sender = sender.clone();
        calls.spawn(async move {
            let request = Request::post(format!("http://{HOST}/package.Service/Method"))
                .header("te", "trailers")
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::from_static(b"call")))
                .expect("a request");
            sender.send_request(request).await
        });
    }
    resolver.wait_pending(32).await;
    resolver.set(&[pod], Mode::Proxy);
    while let Some(answer) = calls.join_next().await {
        let body = answer.expect("no panic").expect("an answer").into_body().collect().await.expect("a body");
        assert_eq!(body.trailers().and_then(|trailers| trailers.get("grpc-status")).expect("trailers"), "0");
        assert_eq!(body.to_bytes(), "message");
    }
}

#[tokio::test]
async fn a_websocket_over_http_2_is_held_and_carries_bytes_both_ways() {
    let resolver = Resolver::start(|_| {}).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let pod = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service =
                hyper::service::service_fn(|mut request: Request<hyper::body::Incoming>| async move {
                    let asked = request.extensions().get::<Protocol>().map(|one| one.as_str().to_owned());
                    if asked.as_deref() != Some("websocket") {
                        let refused = Response::builder().status(400).body(Full::<Bytes>::default());
                        return Ok::<_, Infallible>(refused.expect("an answer"));
                    }
                    let upgrade = hyper::upgrade::on(&mut request);
                    tokio::spawn(async move {
                        let (mut read, mut write) =
                            tokio::io::split(TokioIo::new(upgrade.await.expect("upgraded")));
                        let _ = tokio::io::copy(&mut read, &mut write).await;
                        let _ = write.shutdown().await;
                    });
                    Ok(Response::new(Full::default()))
                });
            let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server.enable_connect_protocol();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    let stream = TcpStream::connect(resolver.address).await.expect("connected");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("h2");
    tokio::spawn(connection);
    let connect = |protocol: Option<&'static str>| {
        let mut request = Request::connect(format!("http://{HOST}/chat")).body(Full::<Bytes>::default());
        if let (Ok(request), Some(protocol)) = (&mut request, protocol) {
            request.extensions_mut().insert(Protocol::from_static(protocol));
        }
        request.expect("a request")
    };
    let asked = tokio::spawn({
        let (mut sender, request) = (sender.clone(), connect(Some("websocket")));
        async move { sender.send_request(request).await }
    });
    resolver.wait_pending(1).await;
    resolver.set(&[pod], Mode::Proxy);
    let mut answer = asked.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 200);
    let upgraded = hyper::upgrade::on(&mut answer).await.expect("upgraded");
    let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    write.write_all(b"hello").await.expect("sent");
    let mut back = [0; 5];
    tokio::time::timeout(PATIENCE, read.read_exact(&mut back)).await.expect("in time").expect("read");
    assert_eq!(&back, b"hello");
    write.shutdown().await.expect("closed");
    let rest = tokio::time::timeout(PATIENCE, read.read(&mut back)).await.expect("in time").expect("read");
    assert_eq!(rest, 0, "the other side hears of the end");

    let refused = sender.send_request(connect(Some("other"))).await.expect("an answer");
    assert_eq!(refused.status(), 400, "what the pod says to other protocols is passed on");
    let plain = sender.send_request(connect(None)).await.expect("an answer");
    assert_eq!(plain.status(), 405);
}

#[tokio::test]
async fn a_shutdown_finishes_what_is_held_and_then_ends() {
    let mut resolver = Resolver::start(|_| {}).await;
    let held = tokio::spawn(send(resolver.address, get("/held")));
    resolver.wait_pending(1).await;
    resolver.stop.cancel();
    let unready = send(resolver.internal, get("/readyz")).await.expect("still answered");
    assert_eq!(unready.0, 503);
    let late = tokio::spawn(send(resolver.address, get("/late")));
    resolver.wait_pending(2).await;
    resolver.set(&[echo().await], Mode::Proxy);
    assert_eq!(held.await.expect("no panic").expect("an answer").0, 200);
    assert_eq!(late.await.expect("no panic").expect("an answer").0, 200);
    tokio::time::timeout(PATIENCE, &mut resolver.task)
        .await
        .expect("in time")
        .expect("no panic")
        .expect("well");
}

#[tokio::test]
async fn a_pod_that_is_listed_too_early_costs_time_and_no_request() {
    let resolver = Resolver::start(|_| {}).await;
    let reserved = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = reserved.local_addr().expect("bound");
    drop(reserved);
    resolver.set(&[address], Mode::Proxy);
    let request = Request::post("/order").header("host", HOST).body(Full::new(Bytes::from_static(b"body")));
    let request = tokio::spawn(send(resolver.address, request.expect("a request")));
    resolver.wait_pending(1).await;
    resolver.set(&[address, echo().await], Mode::Proxy);
    assert_eq!(request.await.expect("no panic"), Ok((200, "/order 4".to_owned())));
}

#[tokio::test]
async fn a_pod_that_closes_after_each_answer_costs_nothing_else() {
    let resolver = Resolver::start(|_| {}).await;
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    counter.fetch_add(1, Ordering::SeqCst);
                    // Says nothing about closing, and closes.
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            });
        }
    });
    resolver.set(&[address], Mode::Proxy);
    for _ in 0..100 {
        let request =
            Request::post("/").header("host", HOST).body(Full::<Bytes>::default()).expect("a request");
        assert_eq!(send(resolver.address, request).await, Ok((200, "ok".to_owned())));
    }
    assert_eq!(served.load(Ordering::SeqCst), 100);
}

#[tokio::test]
async fn clients_are_sent_on_once_pods_serve_directly() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = echo().await;
    for (mode, closes) in [(Mode::Proxy, false), (Mode::Serve, true)] {
        resolver.set(&[pod], mode);
        let mut client = TcpStream::connect(resolver.address).await.expect("connected");
        client
            .write_all(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes())
            .await
            .expect("written");
        let mut answer = vec![0; 1024];
        let read = client.read(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert_eq!(answer.contains("connection: close"), closes, "{answer}");
    }
}

#[tokio::test]
async fn metrics_have_the_known_names_and_few_series() {
    let resolver = Resolver::start(|_| {}).await;
    resolver.set(&[echo().await], Mode::Proxy);
    for number in 0..200 {
        send(resolver.address, get(&format!("/page/{number}"))).await.expect("an answer");
    }
    let (_, text) = send(resolver.internal, get("/metrics")).await.expect("an answer");
    let series = "elasti_resolver_incoming_requests_count{source=\"web\",namespace=\"shop\",method=\"GET\",status=\"200\"} 200";
    assert!(text.contains(series), "{text}");
    for name in ["host_extraction_count", "queued_count", "operator_rpc_count", "traffic_switch_count"] {
        assert!(text.contains(&format!("elasti_resolver_{name}")), "{name}");
    }
    assert!(text.lines().count() < 60, "{text}");
    let (_, queue) =
        send(resolver.internal, get("/queue-status?namespace=shop&service=web")).await.expect("an answer");
    assert_eq!(queue, r#"{"queueStatus":0}"#);
    let (_, activity) = send(resolver.internal, get("/activity")).await.expect("an answer");
    assert!(activity.contains(r#""requests":200"#), "{activity}");
}

#[tokio::test]
async fn hostile_requests_are_refused_and_reach_no_pod() {
    let resolver = Resolver::start(|options| options.head = Duration::from_millis(200)).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let pod = pod(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Response::new(Full::<Bytes>::default()) }
    })
    .await;
    resolver.set(&[pod], Mode::Proxy);
    let long = "x".repeat(200_000);
    let cases = [
        format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc"),
        format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nx: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nbad header: 1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nslow"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT {HOST}:80 HTTP/1.1\r\nhost: {HOST}\r\n\r\n"),
    ];
    for case in cases {
        let mut client = TcpStream::connect(resolver.address).await.expect("connected");
        // Refused before all of it was sent is fine.
        let _ = client.write_all(case.as_bytes()).await;
        let mut answer = vec![0; 1024];
        let read = tokio::time::timeout(PATIENCE, client.read(&mut answer)).await.expect("not held for ever");
        let answer =
            read.map(|read| String::from_utf8_lossy(&answer[..read]).into_owned()).unwrap_or_default();
        assert!(!answer.starts_with("HTTP/1.1 2"), "{} got {answer}", &case[..40]);
    }
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn probes_are_answered_without_waking_or_counting() {
    let mut resolver = Resolver::start(|_| {}).await;
    let probe = Probe {
        method: None,
        path: Some(Pattern::Prefix("/health".into())),
        headers: Vec::new(),
        query: Vec::new(),
        status: hyper::StatusCode::OK,
        body: r#"{"status":"asleep"}"#.into(),
    };
    resolver.probes = Arc::new([probe]);
    resolver.sleep();
    let answer = send(resolver.address, get("/health/live")).await;
    assert_eq!(answer, Ok((200, r#"{"status":"asleep"}"#.to_owned())));
    let (_, activity) = send(resolver.internal, get("/activity")).await.expect("an answer");
    assert!(activity.contains(r#""requests":0"#), "{activity}");
    assert_eq!(resolver.calls.made.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn answers_without_a_body_keep_their_meaning() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = pod(|request: Request<hyper::body::Incoming>| async move {
        let status = if request.uri().path() == "/unchanged" { 304 } else { 200 };
        let length = if request.method() == hyper::Method::HEAD { "300" } else { "0" };
        let response = Response::builder().status(status).header("content-length", length);
        response.body(Full::<Bytes>::default()).expect("a response")
    })
    .await;
    resolver.set(&[pod], Mode::Proxy);
    for (method, path, expected) in [("HEAD", "/", 200), ("GET", "/unchanged", 304), ("GET", "/", 200)] {
        let request = Request::builder().method(method).uri(path).header("host", HOST);
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        assert_eq!(send(resolver.address, request).await, Ok((expected, String::new())), "{method} {path}");
    }
}
