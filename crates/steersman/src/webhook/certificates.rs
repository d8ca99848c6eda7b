//! The certificate that is shown now, replaced while connections come in.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::WebhookError;

/// A certificate with its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The certificate and those that lead to its CA.
    pub(super) certificate: String,
    pub(super) key: String,
}

/// What new connections are shown.
#[derive(Default)]
pub(super) struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows another certificate from the next connection on; those that are open go on.
    pub(super) fn show(&self, identity: &Identity) -> Result<(), WebhookError> {
        let key = certified(identity)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
        Ok(())
    }

    /// TLS with what is shown.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, WebhookError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| WebhookError::Certificate(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

fn certified(identity: &Identity) -> Result<CertifiedKey, WebhookError> {
    let bad = |why: String| WebhookError::Certificate(why);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad("there is no certificate in it".to_owned()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| bad(error.to_string()))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| bad(error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|error| bad(format!("certificate and key do not belong together: {error}")))?;
    Ok(certified)
}
