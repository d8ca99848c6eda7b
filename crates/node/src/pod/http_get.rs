//! One HTTP request to a container.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::runtime::Network;

/// Where to ask and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tls: bool,
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// Asks and returns the status code.
pub(crate) async fn status(network: &Network, target: &Target) -> Result<u16, String> {
    let scheme = if target.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", target.address, path(target));
    let failed = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let stream = network.connect(target.address).await.map_err(|error| failed(&error))?;
    if !target.tls {
        return ask(stream, target).await.map_err(|error| failed(&error));
    }
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting()?));
    let name = ServerName::IpAddress(target.address.ip().into());
    let stream = connector.connect(name, stream).await.map_err(|error| failed(&error))?;
    ask(stream, target).await.map_err(|error| failed(&error))
}

fn path(target: &Target) -> String {
    match target.path.starts_with('/') {
        true => target.path.clone(),
        false => format!("/{}", target.path),
    }
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
) -> Result<u16, String> {
    let text = |error: hyper::Error| error.to_string();
    let mut request = Request::get(path(target))
        .header(http::header::USER_AGENT, "kube-probe/1.36")
        .header(http::header::ACCEPT, "*/*")
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    for (name, value) in &target.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    if !headers.contains_key(http::header::HOST)
        && let Ok(host) = HeaderValue::from_str(&target.address.to_string())
    {
        headers.insert(http::header::HOST, host);
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    // The connection may end in the same moment in which the answer is complete.
    let answer = tokio::select! {
        answer = answer.as_mut() => answer,
        _ = connection => answer.await,
    };
    Ok(answer.map_err(text)?.status().as_u16())
}

/// Probes are about health, not identity: any certificate will do, as for the kubelet.
fn trusting() -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth())
}

#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
