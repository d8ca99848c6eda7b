//! What was measured and read of KubeElasti's resolver, and is otherwise here. The letters and
//! numbers are those under which the defects are known; those of WebSocket (M1), events (M2),
//! shutdown (M7), series (M8) and names (M9) have their tests in `resolver.rs` and `others.rs`.

mod support;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman_resolver::{Mode, Route, ServiceKey, ServicePort};
use support::{HOST, PATIENCE, Resolver, echo, get, pod, send, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[tokio::test]
async fn m3_a_response_of_200_mib_leaves_the_memory_alone() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = pod(|_| async {
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let frames =
            futures::stream::iter((0..200).map(move |_| Ok::<_, Infallible>(Frame::data(piece.clone()))));
        Response::new(StreamBody::new(frames))
    })
    .await;
    resolver.set(&[pod], Mode::Proxy);
    let mut client = TcpStream::connect(resolver.address).await.expect("connected");
    client.write_all(format!("GET / HTTP/1.0\r\nhost: {HOST}\r\n\r\n").as_bytes()).await.expect("written");
    let before = resident_kib();
    let (mut total, mut most) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read =
            tokio::time::timeout(PATIENCE, client.read(&mut buffer)).await.expect("in time").expect("read");
        if read == 0 {
            break;
        }
        // A slow reader, every now and then: what is kept back must not be kept here.
        if total / (10 << 20) != (total + read) / (10 << 20) {
            tokio::task::yield_now().await;
            most = most.max(resident_kib());
        }
        total += read;
    }
    assert!(total > 200 << 20, "{total}");
    assert!(most.saturating_sub(before) < 100 * 1024, "{before} KiB became {most} KiB");
}

#[tokio::test]
async fn m5_steady_requests_are_handed_on_for_as_long_as_they_come() {
    let resolver = Resolver::start(|_| {}).await;
    let pod = echo().await;
    for round in 0..6 {
        // However often the mode changes, and whichever it is.
        resolver.set(&[pod], if round % 2 == 0 { Mode::Serve } else { Mode::Proxy });
        for number in 0..50 {
            let answer = send(resolver.address, get(&format!("/{number}"))).await;
            assert_eq!(answer, Ok((200, format!("/{number} 0"))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m6_no_place_is_lost_however_many_come_and_go() {
    let resolver = Resolver::start(|options| {
        options.per_backend = 2;
        options.pending_per_service = 64;
    })
    .await;
    resolver.set(&[echo().await, echo().await], Mode::Proxy);
    for round in 0..20 {
        let mut clients = JoinSet::new();
        for number in 0..32 {
            let address = resolver.address;
            clients.spawn(async move {
                if number % 3 == 0 {
                    // Leaves in the middle.
                    let asking = send(address, get("/leaves"));
                    let _ =
                        tokio::time::timeout(std::time::Duration::from_micros(300 * number), asking).await;
                    return;
                }
                assert_eq!(send(address, get("/stays")).await.map(|(status, _)| status), Ok(200));
            });
        }
        while let Some(done) = clients.join_next().await {
            done.expect("no panic");
        }
        resolver.wait_pending(0).await;
        assert_eq!(
            send(resolver.address, get("/after")).await.map(|(status, _)| status),
            Ok(200),
            "round {round}"
        );
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (_, activity) = send(resolver.internal, get("/activity")).await.expect("an answer");
        if activity.contains(r#""held":0"#) && activity.contains(r#""running":0"#) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{activity}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn b6_services_of_the_same_name_are_woken_each_on_its_own() {
    let resolver = Resolver::start(|_| {}).await;
    let ports = vec![ServicePort { number: 80, name: String::new() }];
    resolver.directory.set(&ServiceKey::new("lab", "web"), Route { ports, ..Route::default() });
    let mut asking = JoinSet::new();
    for host in ["web.shop", "web.lab"] {
        let request =
            Request::get("/").header("host", host).body(Full::<Bytes>::default()).expect("a request");
        asking.spawn(send(resolver.address, request));
    }
    until("two calls", || resolver.calls.made.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn redirects_go_to_the_client_and_first_answers_arrive_whole() {
    let resolver = Resolver::start(|_| {}).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let pod = pod(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async {
            let head = Response::builder().status(302).header("location", "/elsewhere");
            head.body(Full::new(Bytes::from(vec![b'x'; 3_000_000]))).expect("a response")
        }
    })
    .await;
    let asking = tokio::spawn(send(resolver.address, get("/")));
    resolver.wait_pending(1).await;
    resolver.set(&[pod], Mode::Proxy);
    let (status, body) = asking.await.expect("no panic").expect("an answer");
    assert_eq!((status, body.len(), asked.load(Ordering::SeqCst)), (302, 3_000_000, 1));
}

#[tokio::test]
async fn one_connection_serves_many_requests_before_and_after_the_switch() {
    let resolver = Resolver::start(|_| {}).await;
    resolver.set(&[echo().await], Mode::Proxy);
    let stream = TcpStream::connect(resolver.address).await.expect("connected");
    let handshake = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("HTTP/1.1");
    tokio::spawn(connection);
    for number in 0..50 {
        sender.ready().await.expect("kept open");
        let answer = sender.send_request(get(&format!("/{number}"))).await.expect("an answer");
        assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes(), format!("/{number} 0"));
    }
}

#[tokio::test]
async fn a_cold_start_is_measured_in_its_parts() {
    let resolver = Resolver::start(|_| {}).await;
    let key = ServiceKey::new("shop", "web");
    let asking = tokio::spawn(send(resolver.address, get("/")));
    resolver.wait_pending(1).await;
    until("a call", || resolver.calls.made.load(Ordering::SeqCst) == 1).await;
    resolver.directory.scheduled(&key, 1);
    resolver.directory.listen(&key, &BTreeMap::new());
    resolver.set(&[echo().await], Mode::Proxy);
    assert_eq!(asking.await.expect("no panic").map(|(status, _)| status), Ok(200));
    send(resolver.address, get("/warm")).await.expect("an answer");
    let (_, text) = send(resolver.internal, get("/metrics")).await.expect("an answer");
    for part in ["notify", "schedule", "ready", "first_byte", "total"] {
        let series = format!("elasti_resolver_cold_start_seconds_count{{part=\"{part}\"}} 1");
        assert!(text.contains(&series), "{part}: {text}");
    }
}
