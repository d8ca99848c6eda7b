//! How the connection to PostgreSQL is secured.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::database::HistoryError;
use crate::certificates;

/// Whether a connection is secured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// It is not: for the same machine, or a network that is secured otherwise.
    #[default]
    Off,
    /// It is encrypted, whoever answers: nobody can listen, and anybody can pose as the server.
    Encrypted,
    /// It is, and the server's certificate is checked against the machine's authorities, or
    /// against those in a PEM file.
    Verified(Option<PathBuf>),
}

impl Tls {
    /// The same as `sslmode` and what belongs to it in a URL.
    pub(super) fn mode(&self) -> String {
        match self {
            Self::Off => "disable".to_owned(),
            Self::Encrypted => "require".to_owned(),
            Self::Verified(None) => "verify-full".to_owned(),
            Self::Verified(Some(path)) => format!("verify-full&sslrootcert={}", path.display()),
        }
    }

    /// What a client needs; nothing for a connection that is not secured.
    pub(super) fn config(&self) -> Result<Option<ClientConfig>, HistoryError> {
        let failed = |error: &dyn fmt::Display| HistoryError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let builder = match self {
            Self::Off => return Ok(None),
            Self::Encrypted => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            }
            Self::Verified(None) => builder.try_with_platform_verifier().map_err(|error| failed(&error))?,
            Self::Verified(Some(path)) => builder.with_root_certificates(roots(path)?),
        };
        Ok(Some(builder.with_no_client_auth()))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, HistoryError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates::read(path).map_err(HistoryError::Tls)? {
        let unusable = |error| HistoryError::Tls(format!("{}: {error}", path.display()));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

/// Takes any certificate, as long as the server has the key to it.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_are_none_are_refused_with_their_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let tls = Tls::Verified(Some(file.path().to_owned()));
        let error = tls.config().expect_err("no authorities").to_string();
        assert!(error.contains(&file.path().display().to_string()), "{error}");
    }
}
