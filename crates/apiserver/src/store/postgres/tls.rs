//! How connections to the database are encrypted.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::auth::Unchecked;

/// Whose certificates are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust<'a> {
    /// Everybody's, as PostgreSQL's own clients do unless they are told otherwise.
    Anyone,
    /// Those that authorities have signed which the system trusts, for the server's name.
    System,
    /// The same by the authorities in a PEM file.
    File(&'a str),
}

/// Makes connections encrypted.
pub(super) fn connector(trust: Trust<'_>) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
        Trust::System => builder.with_platform_verifier().map_err(|error| error.to_string())?,
        Trust::File(file) => builder.with_root_certificates(roots(file)?),
    };
    Ok(MakeRustlsConnect::new(builder.with_no_client_auth()))
}

fn roots(file: &str) -> Result<RootCertStore, String> {
    let unusable = |error: &dyn std::fmt::Display| format!("cannot use sslrootcert {file}: {error}");
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        trusted.add(certificate).map_err(|error| unusable(&error))?;
    }
    Ok(trusted)
}
