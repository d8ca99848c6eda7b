//! `serve-echo`: a web server that says who it is and what it was asked.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The largest body that is echoed; the rest is only counted as too large.
const BODY: usize = 64 * 1024;

/// Settings of [`serve_echo`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoOptions {
    /// Where to listen. Default: `$HOST`, else every address of the pod.
    pub host: IpAddr,
    /// The port. Default: `$PORT`, else 80.
    pub port: u16,
    /// The name to answer with. Default: `$POD_NAME`, else `$HOSTNAME`.
    pub name: String,
    /// How long a request is answered after the end was asked for. Default: 5 s.
    pub drain: Duration,
}

impl EchoOptions {
    /// Reads the environment, here given as a function so that a test can hold it.
    ///
    /// # Errors
    /// When `$PORT` or `$HOST` is not what it should be.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let port = match variable("PORT") {
            None => 80,
            Some(text) => {
                text.parse().map_err(|_| format!("PORT is \"{text}\"; expected a number from 1 to 65535"))?
            }
        };
        let host = match variable("HOST") {
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Some(text) => text.parse().map_err(|_| format!("HOST is \"{text}\"; expected an IP address"))?,
        };
        let name = variable("POD_NAME").or_else(|| variable("HOSTNAME"));
        Ok(EchoOptions {
            host,
            port,
            name: name.unwrap_or_else(|| "echo".to_string()),
            drain: Duration::from_secs(5),
        })
    }
}

/// Serves until the token is cancelled.
///
/// # Errors
/// When the port cannot be listened on.
pub async fn serve_echo(options: EchoOptions, shutdown: CancellationToken) -> io::Result<()> {
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on {address}: {error}; choose another port with --port or $PORT"),
        )
    })?;
    tracing::info!(address = %listener.local_addr()?, name = options.name, "serving");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(answer_all(stream, options.name.clone(), shutdown.clone()));
                }
                // Out of descriptors: give the open connections time to end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(options.drain, drained).await;
    Ok(())
}

async fn answer_all(stream: TcpStream, name: String, shutdown: CancellationToken) {
    let service = service_fn(move |request| {
        let name = name.clone();
        async move { Ok::<_, Infallible>(answer(&name, request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(name: &str, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut text = format!("{name}\n{} {}\n", head.method, head.uri);
    for (header, value) in &head.headers {
        text.push_str(&format!("{header}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    match Limited::new(body, BODY).collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            if !body.is_empty() {
                text.push('\n');
                text.push_str(&String::from_utf8_lossy(&body));
            }
        }
        Err(_) => text.push_str("\n(body too large to echo)\n"),
    }
    Response::new(Full::new(Bytes::from(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_where_to_listen() {
        let options = EchoOptions::from_env(|name| match name {
            "PORT" => Some("8080".into()),
            "POD_NAME" => Some("web-0".into()),
            _ => None,
        })
        .expect("valid");
        assert_eq!((options.port, options.name.as_str()), (8080, "web-0"));
        assert_eq!(EchoOptions::from_env(|_| None).expect("defaults").port, 80);
        let error = EchoOptions::from_env(|_| Some("x".into())).expect_err("not a number");
        assert!(error.contains("expected a number"), "{error}");
    }
}
