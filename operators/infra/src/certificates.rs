//! Certificates of authorities in PEM files.

use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// All certificates in a file; there must be one.
pub(crate) fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    match all.is_empty() {
        true => Err(unusable(&"there is no certificate in it")),
        false => Ok(all),
    }
}
