//! Whom a call trusts: the authorities of the webhook's `caBundle` and nobody else.

use std::{fmt, io, sync::Arc, time::Duration};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

use crate::server::Clock;

/// TLS that trusts a bundle of certificates in PEM, at the time of this clock.
pub(super) fn config(ca_bundle: &[u8], clock: Clock) -> Result<Arc<ClientConfig>, String> {
    let unusable =
        |why: String| format!("could not get REST client: unable to load root certificates: {why}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let mut bundle = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
        bundle.push(certificate);
    }
    let inner = if roots.is_empty() {
        None
    } else {
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        Some(inner.map_err(|error| unusable(error.to_string()))?)
    };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Bundle { inner, bundle, provider, clock }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Says what is wrong with a handshake in the words of Go's TLS, which users search the web for.
pub(super) fn explain(error: io::Error) -> io::Error {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else {
        return error;
    };
    let TlsError::InvalidCertificate(problem) = tls else { return error };
    let problem = match problem {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> =
                presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name)).collect();
            let expected = expected.to_str();
            format!("certificate is valid for {}, not {expected}", presented.join(", "))
        }
        other => other.to_string(),
    };
    io::Error::other(format!("tls: failed to verify certificate: x509: {problem}"))
}

/// Trusts what a bundle signed, and what the bundle itself holds: many a webhook has one certificate that is
/// its own authority.
struct Bundle {
    inner: Option<Arc<WebPkiServerVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    clock: Clock,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("certificates", &self.bundle.len()).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let seconds = u64::try_from((self.clock)().as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let Some(inner) = &self.inner else {
            return Err(TlsError::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let checked = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if checked.is_err() && self.bundle.iter().any(|trusted| trusted == end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            check_time(end_entity, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        checked
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn check_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TlsError> {
    let expired = || TlsError::InvalidCertificate(CertificateError::Expired);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| TlsError::InvalidCertificate(CertificateError::BadEncoding))?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    let valid = (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&seconds);
    if valid { Ok(()) } else { Err(expired()) }
}
