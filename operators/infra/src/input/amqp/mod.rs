//! As much of AMQP 0-9-1 as a consumer needs that acknowledges late and parks what it cannot use.
//!
//! One connection with one channel, driven by whoever calls [`Connection::next`]: reading a frame
//! can be given up at any time without losing anything.

mod frame;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Uri;
use hyper_rustls::ConfigBuilderExt;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use frame::{Frame, FrameError, Kind, LARGEST, Reader, Writer};

/// The only channel.
const CHANNEL: u16 = 1;
/// How long the server may take for each step of the greeting.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often each side shows that it lives, in seconds.
const HEARTBEAT: u16 = 10;
/// The largest message that is taken.
const LARGEST_MESSAGE: u64 = 4 << 20;

/// Why there is no connection, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(super) enum AmqpError {
    #[error("the address {0:?} is not like amqp://user:password@host:5672/vhost")]
    Address(String),
    #[error("{0}")]
    Network(#[from] std::io::Error),
    #[error("no secure connection: {0}")]
    Tls(String),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("the server did not answer in time")]
    Silent,
    #[error("the server closed the connection")]
    Closed,
}

/// What the server sent.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// A message.
    Delivery(Delivery),
    /// It has taken responsibility for everything published up to this number.
    Confirmed { number: u64, all_before: bool },
    /// It could not take what was published under this number.
    NotConfirmed { number: u64 },
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delivery {
    pub(super) tag: u64,
    pub(super) id: Option<String>,
    pub(super) body: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that consumes one queue.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    arrived: BytesMut,
    /// The message whose parts are arriving.
    partial: Option<(Delivery, Option<u64>)>,
    published: u64,
    heard: Instant,
    spoke: Instant,
    heartbeat: Duration,
    largest: usize,
}

struct Address {
    secure: bool,
    host: String,
    port: u16,
    user: String,
    password: String,
    vhost: String,
}

impl Address {
    fn parse(url: &str) -> Result<Self, AmqpError> {
        // The message never shows the password.
        let wrong = || AmqpError::Address(url.split('@').next_back().unwrap_or_default().to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("amqp") => false,
            Some("amqps") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?.as_str();
        let (user, password) = match authority.rsplit_once('@') {
            None => ("guest".to_owned(), "guest".to_owned()),
            Some((account, _)) => {
                let (user, password) = account.split_once(':').unwrap_or((account, ""));
                (decoded(user), decoded(password))
            }
        };
        let path = uri.path().trim_start_matches('/');
        let vhost = if path.is_empty() { "/".to_owned() } else { decoded(path) };
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 5671 } else { 5672 });
        Ok(Self { secure, host, port, user, password, vhost })
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits = rest.clone().take(2).map(char::from).collect::<String>();
        match (byte, u8::from_str_radix(&digits, 16)) {
            (b'%', Ok(code)) if digits.len() == 2 => {
                bytes.push(code);
                rest.nth(1);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether an address can be used at all.
pub(super) fn check(url: &str) -> Result<(), AmqpError> {
    Address::parse(url).map(drop)
}

impl Connection {
    /// Connects, checks that `queue` is there, makes `parking` if it is not, and begins to consume.
    pub(super) async fn open(
        url: &str,
        queue: &str,
        parking: &str,
        prefetch: u16,
    ) -> Result<Self, AmqpError> {
        let address = Address::parse(url)?;
        let tcp = tokio::time::timeout(PATIENCE, TcpStream::connect((address.host.as_str(), address.port)));
        let tcp = tcp.await.map_err(|_| AmqpError::Silent)??;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> =
            if address.secure { Box::new(secured(tcp, &address.host).await?) } else { Box::new(tcp) };
        let now = Instant::now();
        let mut connection = Self {
            stream,
            arrived: BytesMut::with_capacity(8 << 10),
            partial: None,
            published: 0,
            heard: now,
            spoke: now,
            heartbeat: Duration::from_secs(HEARTBEAT.into()),
            largest: LARGEST,
        };
        connection.greet(&address).await?;
        connection.ask(CHANNEL, Writer::method(20, 10).short("").end(), (20, 11)).await?;
        // Passive: somebody else decides what the queue is like.
        let passive = Writer::method(50, 10).u16(0).short(queue).u8(0b0_0001).u32(0).end();
        connection.ask(CHANNEL, passive, (50, 11)).await?;
        let durable = Writer::method(50, 10).u16(0).short(parking).u8(0b0_0010).u32(0).end();
        connection.ask(CHANNEL, durable, (50, 11)).await?;
        connection.ask(CHANNEL, Writer::method(85, 10).u8(0).end(), (85, 11)).await?;
        connection.ask(CHANNEL, Writer::method(60, 10).u32(0).u16(prefetch).u8(0).end(), (60, 11)).await?;
        let consume = Writer::method(60, 20).u16(0).short(queue).short("").u8(0).u32(0).end();
        connection.ask(CHANNEL, consume, (60, 21)).await?;
        Ok(connection)
    }

    async fn greet(&mut self, address: &Address) -> Result<(), AmqpError> {
        self.stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        self.expect((10, 10)).await?;
        let capabilities = BTreeMap::from([("product", "steersman".to_owned())]);
        let account = format!("\0{}\0{}", address.user, address.password);
        let start = Writer::method(10, 11)
            .table(&capabilities)
            .short("PLAIN")
            .long(account.as_bytes())
            .short("en_US");
        self.send(&Frame::method(0, start.end())).await?;
        let mut tune = self.expect((10, 30)).await?;
        let (channels, largest, beat) = (tune.u16()?, tune.u32()?, tune.u16()?);
        // Zero means that the server does not care.
        let beat = if beat == 0 { HEARTBEAT } else { beat.min(HEARTBEAT) };
        self.heartbeat = Duration::from_secs(beat.into());
        self.largest = match largest as usize {
            0 => LARGEST,
            largest => largest.clamp(4096, LARGEST),
        };
        let largest = u32::try_from(self.largest).unwrap_or(u32::MAX);
        let tuned = Writer::method(10, 31).u16(channels).u32(largest).u16(beat);
        self.send(&Frame::method(0, tuned.end())).await?;
        self.ask(0, Writer::method(10, 40).short(&address.vhost).short("").u8(0).end(), (10, 41)).await
    }

    /// What comes next. May be given up at any time. Shows the server meanwhile that we live.
    pub(super) async fn next(&mut self) -> Result<Incoming, AmqpError> {
        loop {
            let Some(frame) = Frame::read(&mut self.arrived)? else {
                let beat = self.spoke + self.heartbeat / 2;
                let silence = self.heard + self.heartbeat * 2;
                tokio::select! {
                    read = self.stream.read_buf(&mut self.arrived) => {
                        if read? == 0 {
                            return Err(AmqpError::Closed);
                        }
                        self.heard = Instant::now();
                    }
                    () = tokio::time::sleep_until(beat) => self.send(&Frame::heartbeat()).await?,
                    () = tokio::time::sleep_until(silence) => return Err(AmqpError::Silent),
                }
                continue;
            };
            if let Some(incoming) = self.understand(frame).await? {
                return Ok(incoming);
            }
        }
    }

    async fn understand(&mut self, frame: Frame) -> Result<Option<Incoming>, AmqpError> {
        match frame.kind {
            Kind::Heartbeat => Ok(None),
            Kind::Header => {
                let (size, id) = frame::header(frame.payload)?;
                if size > LARGEST_MESSAGE {
                    return Err(AmqpError::Refused(format!(
                        "a message has {size} bytes, and may have {LARGEST_MESSAGE}; take it out of the queue"
                    )));
                }
                let Some((delivery, left)) = &mut self.partial else {
                    return Err(FrameError::Protocol.into());
                };
                delivery.id = id;
                *left = Some(size);
                Ok(self.complete())
            }
            Kind::Body => {
                let Some((delivery, Some(left))) = &mut self.partial else {
                    return Err(FrameError::Protocol.into());
                };
                *left = left.checked_sub(frame.payload.len() as u64).ok_or(FrameError::Protocol)?;
                delivery.body.extend_from_slice(&frame.payload);
                Ok(self.complete())
            }
            Kind::Method => {
                let mut reader = Reader::new(frame.payload);
                match (reader.u16()?, reader.u16()?) {
                    (60, 60) => {
                        let (_consumer, tag) = (reader.short()?, reader.u64()?);
                        self.partial = Some((Delivery { tag, id: None, body: Vec::new() }, None));
                        Ok(None)
                    }
                    (60, 80) => {
                        let (number, many) = (reader.u64()?, reader.u8()?);
                        Ok(Some(Incoming::Confirmed { number, all_before: many & 1 == 1 }))
                    }
                    (60, 120) => Ok(Some(Incoming::NotConfirmed { number: reader.u64()? })),
                    (60, 30) => Err(AmqpError::Refused("the queue was deleted".into())),
                    (10, 50) | (20, 40) => Err(refusal(&mut reader)?),
                    _ => Ok(None),
                }
            }
        }
    }

    fn complete(&mut self) -> Option<Incoming> {
        match &self.partial {
            Some((_, Some(0))) => self.partial.take().map(|(delivery, _)| Incoming::Delivery(delivery)),
            _ => None,
        }
    }

    /// Tells the server that a message is done with.
    pub(super) async fn acknowledge(&mut self, tag: u64) -> Result<(), AmqpError> {
        self.send(&Frame::method(CHANNEL, Writer::method(60, 80).u64(tag).u8(0).end())).await
    }

    /// Puts a message into a queue, to stay there; returns the number under which it is confirmed.
    pub(super) async fn publish(
        &mut self,
        queue: &str,
        id: Option<&str>,
        headers: &BTreeMap<&str, String>,
        body: &[u8],
    ) -> Result<u64, AmqpError> {
        let publish = Writer::method(60, 40).u16(0).short("").short(queue).u8(0).end();
        let mut bytes = BytesMut::new();
        Frame::method(CHANNEL, publish).write(&mut bytes);
        // headers, delivery-mode (2: survives a restart) and message-id.
        let flags = (1 << 13) | (1 << 12) | if id.is_some() { 1 << 7 } else { 0 };
        let mut head = Writer::method(60, 0).u64(body.len() as u64).u16(flags).table(headers).u8(2);
        if let Some(id) = id {
            head = head.short(id);
        }
        Frame { kind: Kind::Header, channel: CHANNEL, payload: head.end() }.write(&mut bytes);
        for part in body.chunks(self.largest - 8) {
            let payload = Bytes::copy_from_slice(part);
            Frame { kind: Kind::Body, channel: CHANNEL, payload }.write(&mut bytes);
        }
        self.write(&bytes).await?;
        self.published += 1;
        Ok(self.published)
    }

    /// Says goodbye; what is not acknowledged goes back into the queue.
    pub(super) async fn close(mut self) {
        let goodbye = Writer::method(10, 50).u16(200).short("goodbye").u16(0).u16(0).end();
        if self.send(&Frame::method(0, goodbye)).await.is_ok() {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.expect((10, 51))).await;
        }
    }

    async fn ask(&mut self, channel: u16, method: Bytes, answer: (u16, u16)) -> Result<(), AmqpError> {
        self.send(&Frame::method(channel, method)).await?;
        self.expect(answer).await.map(drop)
    }

    /// Waits for a method of the server.
    async fn expect(&mut self, wanted: (u16, u16)) -> Result<Reader, AmqpError> {
        let read = async {
            loop {
                while let Some(frame) = Frame::read(&mut self.arrived)? {
                    if frame.kind != Kind::Method {
                        continue;
                    }
                    let mut reader = Reader::new(frame.payload);
                    match (reader.u16()?, reader.u16()?) {
                        found if found == wanted => return Ok(reader),
                        (10, 50) | (20, 40) => return Err(refusal(&mut reader)?),
                        _ => {}
                    }
                }
                if self.stream.read_buf(&mut self.arrived).await? == 0 {
                    return Err(AmqpError::Closed);
                }
                self.heard = Instant::now();
            }
        };
        tokio::time::timeout(PATIENCE, read).await.map_err(|_| AmqpError::Silent)?
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), AmqpError> {
        let mut bytes = BytesMut::new();
        frame.write(&mut bytes);
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), AmqpError> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        tokio::time::timeout(PATIENCE, write).await.map_err(|_| AmqpError::Silent)??;
        self.spoke = Instant::now();
        Ok(())
    }
}

fn refusal(reader: &mut Reader) -> Result<AmqpError, FrameError> {
    let (code, text) = (reader.u16()?, reader.short()?);
    Ok(AmqpError::Refused(format!("{code} {text}")))
}

async fn secured(tcp: TcpStream, host: &str) -> Result<impl Stream + use<>, AmqpError> {
    let said = |error: rustls::Error| AmqpError::Tls(error.to_string());
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(said)?
        .try_with_platform_verifier()
        .map_err(said)?
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| AmqpError::Tls(error.to_string()))?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let handshake = tokio::time::timeout(PATIENCE, connector.connect(name, tcp)).await;
    Ok(handshake.map_err(|_| AmqpError::Silent)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_passwords_are_not_shown() {
        let full = Address::parse("amqps://me:p%40ss@mq.example:5555/my%2Fhost").expect("an address");
        assert!(full.secure);
        assert_eq!((full.host.as_str(), full.port, full.vhost.as_str()), ("mq.example", 5555, "my/host"));
        assert_eq!((full.user.as_str(), full.password.as_str()), ("me", "p@ss"));
        let bare = Address::parse("amqp://localhost").expect("an address");
        assert_eq!((bare.port, bare.vhost.as_str(), bare.user.as_str()), (5672, "/", "guest"));
        for wrong in ["http://me:secret@host", "amqp:", "secret@"] {
            let error = check(wrong).expect_err(wrong).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
