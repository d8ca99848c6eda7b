//! Who the endpoints are and whom they trust.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::options::NodeOptions;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("the serving certificate or its key is not valid PEM: {0}")]
    Serving(rustls_pki_types::pem::Error),
    #[error("the client authority is not valid PEM: {0}")]
    Authority(rustls_pki_types::pem::Error),
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error("the client authority cannot be used: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// An acceptor that knows clients of the authority and lets others ask for health.
pub(crate) fn acceptor(options: &NodeOptions, address: IpAddr) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (certificates, key) = match &options.serving_pem {
        Some((certificates, key)) => given(certificates, key)?,
        None => made(&options.name, address)?,
    };
    let verifier: Arc<dyn ClientCertVerifier> = match &options.client_ca_pem {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.map_err(TlsError::Authority)?)?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?
        }
    };
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn given(certificates: &str, key: &str) -> Result<Identity, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(TlsError::Serving)?;
    Ok((certificates.map_err(TlsError::Serving)?, key))
}

/// One of our own: API servers do not check a kubelet's certificate unless told to.
fn made(name: &str, address: IpAddr) -> Result<Identity, TlsError> {
    let names = vec![name.to_string(), "localhost".to_string(), address.to_string()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok((vec![made.cert.der().clone()], key))
}
