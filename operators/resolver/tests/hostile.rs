//! Requests that nobody should send, and what becomes of them.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_resolver::Mode;
use support::{HOST, PATIENCE, Resolver, get, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A pod that writes down every byte it gets, and answers each head with an empty 200.
async fn recorder() -> (std::net::SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let record = Arc::clone(&record);
            tokio::spawn(async move {
                let mut buffer = vec![0; 65536];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    let heads = {
                        let mut record = record.lock().expect("no panic");
                        record.extend_from_slice(&buffer[..read]);
                        buffer[..read].windows(9).filter(|window| *window == b" HTTP/1.1").count()
                    };
                    for _ in 0..heads {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                    }
                }
            });
        }
    });
    (address, seen)
}

/// Sends bytes and reads until the other side closes or has nothing more to say.
async fn raw(resolver: &Resolver, bytes: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(resolver.address).await.expect("connected");
    // Refused before all of it was sent is fine.
    let _ = client.write_all(bytes).await;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 16384];
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        // An answer is followed by silence on a connection that is kept.
        let patience = if answer.is_empty() { PATIENCE } else { Duration::from_millis(300) };
        match tokio::time::timeout(patience, client.read(&mut buffer)).await {
            Ok(Ok(read @ 1..)) => answer.extend_from_slice(&buffer[..read]),
            Ok(_) => return answer,
            Err(_) => {
                assert!(!answer.is_empty() && tokio::time::Instant::now() < deadline, "held for ever");
                return answer;
            }
        }
    }
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused_and_reach_no_pod() {
    let resolver = Resolver::start(|options| options.head = Duration::from_millis(500)).await;
    let (pod, seen) = recorder().await;
    resolver.set(&[pod], Mode::Proxy);
    let long = "x".repeat(200_000);
    let many = "x: y\r\n".repeat(2000);
    let cases = [
        (
            "two lengths",
            format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc"),
        ),
        ("two lengths in one", format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 3, 4\r\n\r\nabc")),
        ("a signed length", format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: +3\r\n\r\nabc")),
        ("a negative length", format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: -1\r\n\r\nabc")),
        (
            "a length in hexadecimal",
            format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 0x3\r\n\r\nabc"),
        ),
        (
            "chunked not last",
            format!(
                "POST / HTTP/1.1\r\nhost: {HOST}\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "an unknown encoding",
            format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "a folded header",
            format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "a space before the colon",
            format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length : 3\r\n\r\nabc"),
        ),
        ("a zero byte", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nx: a\0b\r\n\r\n")),
        ("a lone carriage return", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nx: a\rb\r\n\r\n")),
        ("a space in a name", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nbad header: 1\r\n\r\n")),
        ("two hosts", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nhost: other\r\n\r\n")),
        ("the same host twice", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nhost: {HOST}\r\n\r\n")),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("a version of the future", format!("GET / HTTP/3.7\r\nhost: {HOST}\r\n\r\n")),
        ("no version", "GET /\r\n\r\n".to_owned()),
        ("a huge header", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nx: {long}\r\n\r\n")),
        ("a huge path", format!("GET /{long} HTTP/1.1\r\nhost: {HOST}\r\n\r\n")),
        ("thousands of headers", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n{many}\r\n")),
        ("a head that does not end", format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nslow")),
        ("CONNECT", format!("CONNECT {HOST}:80 HTTP/1.1\r\nhost: {HOST}\r\n\r\n")),
        ("not HTTP at all", "\u{16}\u{3}\u{1} hello\r\n\r\n".to_owned()),
        ("half a preface of HTTP/2", "PR".to_owned()),
    ];
    for (what, case) in cases {
        let answer = raw(&resolver, case.as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
    }
    assert_eq!(String::from_utf8_lossy(&seen.lock().expect("no panic")), "");
}

#[tokio::test]
async fn what_is_tolerated_reaches_the_pod_in_one_meaning_only() {
    let resolver = Resolver::start(|_| {}).await;
    let hidden = "GET /hidden HTTP/1.1\r\nhost: evil\r\n\r\n";
    // Each is one request, whatever a lenient reader would make of it.
    let cases = [
        (
            "a length beside chunks",
            format!(
                "POST /a HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n",
                hidden.len()
            ),
        ),
        (
            "chunks that hide a request",
            format!(
                "POST /a HTTP/1.1\r\nhost: {HOST}\r\ntransfer-encoding: chunked\r\n\r\n{:x};ext=1\r\n{hidden}\r\n0\r\n\r\n",
                hidden.len()
            ),
        ),
        (
            "a body that hides a request",
            format!("POST /a HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: {}\r\n\r\n{hidden}", hidden.len()),
        ),
        (
            "a header that Connection would take away",
            format!(
                "POST /a HTTP/1.1\r\nhost: {HOST}\r\nconnection: content-length, host\r\ncontent-length: {}\r\n\r\n{hidden}",
                hidden.len()
            ),
        ),
        ("lines that end in a line feed only", format!("GET /a HTTP/1.1\nhost: {HOST}\n\n")),
    ];
    for (what, case) in cases {
        let (pod, seen) = recorder().await;
        resolver.set(&[pod], Mode::Proxy);
        let answer = raw(&resolver, case.as_bytes()).await;
        assert!(answer.starts_with(b"HTTP/1.1 200") || answer.starts_with(b"HTTP/1.1 400"), "{what}");
        let seen = String::from_utf8_lossy(&seen.lock().expect("no panic")).into_owned();
        let head = seen.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
        let framed = [head.contains("\r\ncontent-length:"), head.contains("\r\ntransfer-encoding:")];
        assert!(framed != [true, true], "{what}: {head}");
        if seen.is_empty() {
            continue;
        }
        assert!(
            head.starts_with("post /a http/1.1") || head.starts_with("get /a http/1.1"),
            "{what}: {head}"
        );
        assert!(head.matches("\r\nhost:").count() == 1 && head.contains(HOST), "{what}: {head}");
        // What the pod takes for the end of the first request is its end.
        if framed[0] {
            assert!(head.contains(&format!("\r\ncontent-length: {}", hidden.len())), "{what}: {head}");
        } else if seen.contains("/hidden") {
            assert!(framed[1] && seen.ends_with("\r\n0\r\n\r\n"), "{what}: {seen}");
        }
    }
}

#[tokio::test]
async fn the_name_in_the_request_line_is_the_one_that_the_pod_is_told() {
    let resolver = Resolver::start(|_| {}).await;
    let (pod, seen) = recorder().await;
    resolver.set(&[pod], Mode::Proxy);
    let request = format!("GET http://{HOST}/a HTTP/1.1\r\nhost: evil.example\r\n\r\n");
    assert!(raw(&resolver, request.as_bytes()).await.starts_with(b"HTTP/1.1 200"));
    let seen = String::from_utf8_lossy(&seen.lock().expect("no panic")).to_lowercase();
    assert!(seen.starts_with("get /a http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("\r\nhost: {HOST}\r\n")) && !seen.contains("evil"), "{seen}");
}

#[tokio::test]
async fn a_request_that_goes_round_in_circles_is_stopped() {
    let resolver = Resolver::start(|_| {}).await;
    // A pod that asks its own service, as the resolver would if it were its own pod.
    resolver.set(&[resolver.address], Mode::Proxy);
    let (status, body) = send(resolver.address, get("/round")).await.expect("an answer");
    assert_eq!(status, 508, "{body}");
    assert!(body.contains("its pods ask themselves"), "{body}");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header block of `GET /` for a name, and further headers as they are.
fn block(authority: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84, 0x01, authority.len() as u8];
    block.extend(authority.as_bytes());
    for (name, value) in more {
        block.extend([0x00, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

const HEADERS: u8 = 1;
const END: u8 = 0x5;

#[tokio::test]
async fn bad_frames_of_http_2_end_their_connection_and_no_other() {
    let resolver = Resolver::start(|options| options.head = Duration::from_millis(500)).await;
    let (pod, seen) = recorder().await;
    resolver.set(&[pod], Mode::Proxy);
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    let rapid: Vec<u8> = (0..5000_u32)
        .flat_map(|number| {
            let stream = 1 + 2 * number;
            [frame(HEADERS, END, stream, &block("unknown", &[])), frame(3, 0, stream, &8_u32.to_be_bytes())]
                .concat()
        })
        .collect();
    let endless: Vec<u8> = (0..2000).flat_map(|_| frame(9, 0, 1, &block("unknown", &[("x", "y")]))).collect();
    let cases = [
        ("a wrong preface", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec()),
        ("nothing after the preface", preface.clone()),
        ("data on stream 0", [&preface[..], &frame(0, 0, 0, b"x")].concat()),
        ("data on an idle stream", [&preface[..], &frame(0, 1, 7, b"x")].concat()),
        ("an even stream", [&preface[..], &frame(HEADERS, END, 2, &block(HOST, &[]))].concat()),
        ("a header block that is none", [&preface[..], &frame(HEADERS, END, 1, &[0xff; 40])].concat()),
        ("settings of an odd length", [&preface[..], &frame(4, 0, 0, &[1, 2, 3])].concat()),
        ("a window of zero", [&preface[..], &frame(8, 0, 0, &[0; 4])].concat()),
        ("a ping on a stream", [&preface[..], &frame(6, 0, 1, &[0; 8])].concat()),
        ("a frame that is too long", [&preface[..], &frame(0, 0, 1, &vec![0; 20_000])].concat()),
        (
            "a header in upper case",
            [&preface[..], &frame(HEADERS, END, 1, &block(HOST, &[("Bad", "1")]))].concat(),
        ),
        (
            "a header of connections",
            [&preface[..], &frame(HEADERS, END, 1, &block(HOST, &[("connection", "close")]))].concat(),
        ),
        ("two names", [&preface[..], &frame(HEADERS, END, 1, &block(HOST, &[("host", "evil")]))].concat()),
        (
            "a length that is not so",
            [&preface[..], &frame(HEADERS, END, 1, &block(HOST, &[("content-length", "5")]))].concat(),
        ),
        (
            "headers without end",
            [&preface[..], &frame(HEADERS, 1, 1, &block("unknown", &[])), &endless].concat(),
        ),
        ("thousands of streams, all reset", [&preface[..], &rapid].concat()),
    ];
    for (what, case) in cases {
        let mut client = TcpStream::connect(resolver.address).await.expect("connected");
        let _ = client.write_all(&case).await;
        // Answered with a reset, an error or a goodbye, or closed; what matters is what follows.
        let mut answer = vec![0; 65536];
        let read = tokio::time::timeout(PATIENCE, client.read(&mut answer)).await;
        assert!(read.is_ok(), "{what}: no word");
        drop(client);
        // Others are served all the same: unknown to the directory, and so not the pod's.
        let other =
            hyper::Request::get("/").header("host", "unknown").body(String::new()).expect("a request");
        assert_eq!(send(resolver.address, other).await.map(|(status, _)| status), Ok(404), "{what}");
    }
    let seen = String::from_utf8_lossy(&seen.lock().expect("no panic")).into_owned();
    assert!(!seen.contains("evil") && !seen.contains("Bad"), "{seen}");
}

#[tokio::test]
async fn clients_that_say_nothing_are_let_go() {
    let resolver = Resolver::start(|options| options.head = Duration::from_millis(200)).await;
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    for first in [&b""[..], b"P", b"GET / HT", &preface[..10], &preface] {
        let mut client = TcpStream::connect(resolver.address).await.expect("connected");
        client.write_all(first).await.expect("written");
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, client.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "{}", String::from_utf8_lossy(first));
    }
}
