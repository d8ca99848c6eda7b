//! Ports of their own: anything over TCP is held and handed on.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_resolver::{Mode, ServiceKey};
use support::{PATIENCE, Resolver, echo, send, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A pod that greets, and then says back what it hears.
async fn greeter() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(b"220 ready\r\n").await?;
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

async fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut buffer)).await.expect("in time").expect("read");
    buffer
}

#[tokio::test]
async fn a_protocol_in_which_the_server_speaks_first_wakes_its_pod() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    let mut client = TcpStream::connect(("127.0.0.1", own)).await.expect("connected");
    resolver.wait_pending(1).await;
    resolver.set(&[greeter().await], Mode::Proxy);
    assert_eq!(read(&mut client, 11).await, b"220 ready\r\n");
    client.write_all(b"HELO there\r\n").await.expect("written");
    assert_eq!(read(&mut client, 12).await, b"HELO there\r\n");
    client.shutdown().await.expect("half closed");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("the end");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn what_a_client_said_while_it_was_held_is_not_lost() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    let mut client = TcpStream::connect(("127.0.0.1", own)).await.expect("connected");
    let message = b"*1\r\n$4\r\nPING\r\n";
    client.write_all(message).await.expect("written");
    resolver.wait_pending(1).await;
    resolver.set(&[greeter().await], Mode::Proxy);
    assert_eq!(read(&mut client, 11 + message.len()).await[11..], message[..]);
}

#[tokio::test]
async fn connections_that_only_knock_wake_nobody() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    for _ in 0..20 {
        drop(TcpStream::connect(("127.0.0.1", own)).await.expect("connected"));
    }
    // One that stays shows that those before it were looked at.
    let _stays = TcpStream::connect(("127.0.0.1", own)).await.expect("connected");
    resolver.wait_pending(1).await;
    until("a call is made", || resolver.calls.made.load(Ordering::SeqCst) > 0).await;
    assert_eq!(resolver.calls.made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn clients_that_leave_while_held_free_their_places() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    for first in [&b""[..], b"\x16\x03\x01 hello"] {
        let mut client = TcpStream::connect(("127.0.0.1", own)).await.expect("connected");
        client.write_all(first).await.expect("written");
        resolver.wait_pending(1).await;
        drop(client);
        resolver.wait_pending(0).await;
    }
}

#[tokio::test]
async fn http_needs_no_known_host_there_and_cannot_choose_another_service() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    resolver.set(&[echo().await], Mode::Proxy);
    for host in ["example.com", "kubernetes.default.svc", "web.other"] {
        let request = hyper::Request::get("/page").header("host", host);
        let request = request.body(String::new()).expect("a request");
        let answer = send(([127, 0, 0, 1], own).into(), request).await;
        assert_eq!(answer, Ok((200, "/page 0".to_owned())), "{host}");
    }
}

#[tokio::test]
async fn a_port_closes_with_its_service_and_its_connections_go_on() {
    let resolver = Resolver::start(|_| {}).await;
    let own = resolver.own_port().await;
    resolver.set(&[greeter().await], Mode::Proxy);
    let mut client = TcpStream::connect(("127.0.0.1", own)).await.expect("connected");
    assert_eq!(read(&mut client, 11).await, b"220 ready\r\n");
    resolver.directory.remove(&ServiceKey::new("shop", "web"));
    let refused = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&refused);
    let knocking = tokio::spawn(async move {
        while TcpStream::connect(("127.0.0.1", own)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        counter.store(1, Ordering::SeqCst);
    });
    until("the port is closed", || refused.load(Ordering::SeqCst) == 1).await;
    knocking.await.expect("no panic");
    client.write_all(b"still here\r\n").await.expect("written");
    assert_eq!(read(&mut client, 12).await, b"still here\r\n");
}
