//! Connections to where triggers are asked.
//!
//! On a cluster an operator reaches pods and Services as everybody does. One that runs outside of
//! the pods' network is given a way in.

use hyper::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower_service::Service;

/// A connection in the making.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// A way to connect to a host and a port, for operators that are outside of the pods' network.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>);

impl Dial {
    /// A way that is this function.
    pub fn new(connect: impl Fn(String, u16) -> Dialing + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// Connects as the machine does, or in the way that was given.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    plain: HttpConnector,
    dial: Option<Dial>,
}

impl Connector {
    pub(crate) fn new(dial: Option<Dial>, patience: Duration) -> Self {
        let mut plain = HttpConnector::new();
        plain.enforce_http(false);
        plain.set_connect_timeout(Some(patience));
        Self { plain, dial }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.plain.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Some(dial) = &self.dial else {
            let connecting = self.plain.call(uri);
            return Box::pin(async move { connecting.await.map_err(io::Error::other) });
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let connecting = (dial.0)(host, uri.port_u16().unwrap_or(usual));
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}

/// Connects with TLS too, where it is asked for.
pub(crate) fn https(
    dial: Option<Dial>,
    patience: Duration,
) -> Result<HttpsConnector<Connector>, rustls::Error> {
    let provider = rustls::crypto::ring::default_provider();
    let tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()?
        .try_with_platform_verifier()?
        .with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Ok(builder.wrap_connector(Connector::new(dial, patience)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_given_way_is_asked_for_hosts_and_ports() {
        let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let dial = Dial::new(move |host, port| {
            let _ = sender.send((host, port));
            Box::pin(async { Err(io::Error::other("nowhere")) })
        });
        let mut connector = Connector::new(Some(dial), Duration::from_secs(1));
        for (uri, expected) in [
            ("http://10.244.0.7:8013/activity", ("10.244.0.7", 8013)),
            ("http://prometheus.monitoring/x", ("prometheus.monitoring", 80)),
            ("https://[fd00::1]/", ("fd00::1", 443)),
        ] {
            let error = connector.call(uri.parse().expect("a URI")).await.expect_err("nowhere");
            assert_eq!(error.to_string(), "nowhere");
            assert_eq!(asked.recv().await, Some((expected.0.to_owned(), expected.1)));
        }
    }
}
