//! The cluster's own certificate authority, kept in a folder.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rand::Rng as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde::{Deserialize, Serialize};

use super::Authenticator;
use crate::{
    http::ServingIdentity,
    server::{ServiceCidr, User},
};

/// Certificates are good for this many years.
const YEARS: i32 = 10;

/// Why certificates or tokens cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than expected.
    #[error("{path} is damaged: {why}; remove it to have a new one made")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// A client certificate.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, in PEM.
    pub certificate_pem: String,
    /// Its key, in PEM.
    pub key_pem: String,
}

/// How a kubeconfig proves who its holder is.
#[derive(Debug, Clone, Copy)]
pub enum Credentials<'a> {
    /// With a client certificate.
    Certificate(&'a Identity),
    /// With a token.
    Token(&'a str),
}

/// A certificate authority with the keys that go with it.
pub struct Authority {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
    serving: Identity,
    token_key: Vec<u8>,
    tokens: BTreeMap<String, TokenUser>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TokenUser {
    user: String,
    groups: Vec<String>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Loads the authority that a folder keeps, or makes one and keeps it there.
    ///
    /// The folder gets `ca.crt`, `ca.key`, `serving.crt`, `serving.key`, `tokens.key` and `tokens.json`, readable
    /// by their owner only.
    ///
    /// # Errors
    /// When the folder cannot be read or written, or holds something else.
    pub fn load_or_create(dir: &Path) -> Result<Self, AuthorityError> {
        Self::with_names(dir, ServiceCidr::default(), &[])
    }

    /// As [`Authority::load_or_create`], with a serving certificate that is also good for the first address of
    /// another range of Services and for more names and addresses.
    ///
    /// # Errors
    /// When the folder cannot be read or written, or holds something else.
    pub fn with_names(dir: &Path, services: ServiceCidr, more: &[String]) -> Result<Self, AuthorityError> {
        make_folder(dir)?;
        let (ca_pem, issuer) = load_ca(dir)?;
        let serving = serving(dir, &ca_pem, &issuer, services, more)?;
        let token_key = load_or_make(&dir.join("tokens.key"), || Ok(STANDARD.encode(random_bytes())))?;
        let path = dir.join("tokens.json");
        let text = load_or_make(&path, || {
            let admin = TokenUser { user: "admin".into(), groups: vec!["system:masters".into()] };
            let tokens = BTreeMap::from([(random_token(), admin)]);
            serde_json::to_string_pretty(&tokens)
                .map_err(|error| AuthorityError::Damaged { path: path.clone(), why: error.to_string() })
        })?;
        let tokens = serde_json::from_str(&text)
            .map_err(|error| AuthorityError::Damaged { path, why: error.to_string() })?;
        Ok(Self { ca_pem, issuer, serving, token_key: token_key.into_bytes(), tokens })
    }

    /// The CA's certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// What the server shows to clients.
    pub fn serving_identity(&self) -> ServingIdentity {
        ServingIdentity {
            certificate_pem: self.serving.certificate_pem.clone(),
            key_pem: self.serving.key_pem.clone(),
            client_ca_pem: self.ca_pem.clone(),
        }
    }

    /// Knows the tokens of this authority.
    pub fn authenticator(&self) -> Authenticator {
        let tokens = self
            .tokens
            .iter()
            .map(|(token, user)| (token.clone(), User::new(user.user.clone(), user.groups.clone())));
        Authenticator::new(tokens, &self.token_key)
    }

    /// The fixed token of a user, when there is one.
    pub fn token(&self, user: &str) -> Option<&str> {
        self.tokens.iter().find(|(_, known)| known.user == user).map(|(token, _)| token.as_str())
    }

    /// A client certificate for a user.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn issue_client(&self, user: &User) -> Result<Identity, AuthorityError> {
        let mut params = parameters(&user.name, &user.groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// A certificate that is good for serving under these names and addresses and for calling, as kubelets need it.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn issue_serving(&self, user: &User, names: &[String]) -> Result<Identity, AuthorityError> {
        let mut params = parameters(&user.name, &user.groups);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// A kubeconfig for this server.
    pub fn kubeconfig(&self, server_url: &str, credentials: Credentials<'_>) -> String {
        let user = match credentials {
            Credentials::Token(token) => format!("    token: {token}\n"),
            Credentials::Certificate(identity) => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(&identity.certificate_pem),
                STANDARD.encode(&identity.key_pem)
            ),
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: steersman\n\
             clusters:\n- name: steersman\n  cluster:\n    server: {server_url}\n    certificate-authority-data: {}\n\
             contexts:\n- name: steersman\n  context:\n    cluster: steersman\n    user: steersman\n\
             users:\n- name: steersman\n  user:\n{user}",
            STANDARD.encode(&self.ca_pem)
        )
    }
}

fn load_ca(dir: &Path) -> Result<(String, Issuer<'static, KeyPair>), AuthorityError> {
    let (certificate_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
    let damaged = |path: &Path, error: &rcgen::Error| AuthorityError::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let key_pem = load_or_make(&key_path, || Ok(KeyPair::generate()?.serialize_pem()))?;
    let key = KeyPair::from_pem(&key_pem).map_err(|error| damaged(&key_path, &error))?;
    let ca_pem = load_or_make(&certificate_path, || {
        let mut params = parameters("steersman-ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(params.self_signed(&key)?.pem())
    })?;
    let issuer =
        Issuer::from_ca_cert_pem(&ca_pem, key).map_err(|error| damaged(&certificate_path, &error))?;
    Ok((ca_pem, issuer))
}

/// The serving certificate; made anew when it lacks a name that is asked for.
fn serving(
    dir: &Path,
    ca_pem: &str,
    issuer: &Issuer<'static, KeyPair>,
    services: ServiceCidr,
    more: &[String],
) -> Result<Identity, AuthorityError> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    names.extend(
        [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
            IpAddr::from(services.first()),
        ]
        .map(|ip| ip.to_string()),
    );
    names.extend(more.iter().cloned());
    names.sort();
    names.dedup();
    let (certificate_path, key_path, names_path) =
        (dir.join("serving.crt"), dir.join("serving.key"), dir.join("serving.names"));
    let wanted = format!("{}\n{}", names.join("\n"), STANDARD.encode(ca_pem));
    if let (Ok(certificate_pem), Ok(key_pem), Ok(known)) = (
        fs::read_to_string(&certificate_path),
        fs::read_to_string(&key_path),
        fs::read_to_string(&names_path),
    ) && known == wanted
    {
        return Ok(Identity { certificate_pem, key_pem });
    }
    let mut params = parameters("kube-apiserver", &[]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    let identity = Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() };
    write_private(&certificate_path, &identity.certificate_pem)?;
    write_private(&key_path, &identity.key_pem)?;
    write_private(&names_path, &wanted)?;
    Ok(identity)
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

fn parameters(name: &str, organizations: &[String]) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    // One attribute of a kind is all that a name holds here, so a user has its first group in its certificate.
    for organization in organizations.iter().filter(|group| *group != "system:authenticated").take(1) {
        subject.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name = subject;
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026 + YEARS, 12, 31);
    params.use_authority_key_identifier_extension = true;
    params
}

fn random_bytes() -> [u8; 32] {
    rand::rng().random()
}

fn random_token() -> String {
    random_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn make_folder(dir: &Path) -> Result<(), AuthorityError> {
    let failed = |source| AuthorityError::File { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

fn load_or_make(
    path: &Path,
    make: impl FnOnce() -> Result<String, AuthorityError>,
) -> Result<String, AuthorityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = make()?;
            write_private(path, &text)?;
            Ok(text)
        }
        Err(source) => Err(AuthorityError::File { path: path.to_owned(), source }),
    }
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_private(path: &Path, text: &str) -> Result<(), AuthorityError> {
    let failed = |source| AuthorityError::File { path: path.to_owned(), source };
    let part = path.with_extension("part");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(&part).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&part, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};

    use super::*;
    use crate::auth::certificate_user;

    #[test]
    fn an_authority_is_the_same_after_a_restart() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = Authority::load_or_create(dir.path()).expect("made");
        let second = Authority::load_or_create(dir.path()).expect("loaded");
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert_eq!(first.token("admin"), second.token("admin"));
        assert_eq!(first.serving.certificate_pem, second.serving.certificate_pem);
        let other = Authority::with_names(dir.path(), ServiceCidr::default(), &["example.test".into()])
            .expect("loaded");
        assert_ne!(
            first.serving.certificate_pem, other.serving.certificate_pem,
            "a new name makes a new certificate"
        );
    }

    #[test]
    fn a_client_certificate_says_who_its_holder_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let authority = Authority::load_or_create(dir.path()).expect("made");
        let identity =
            authority.issue_client(&User::new("system:node:one", ["system:nodes"])).expect("issued");
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("PEM");
        let user = certificate_user(&certificate).expect("a user");
        assert_eq!(user, User::new("system:node:one", ["system:nodes"]));
        let kubeconfig = authority.kubeconfig("https://127.0.0.1:6443", Credentials::Certificate(&identity));
        assert!(
            kubeconfig.contains("server: https://127.0.0.1:6443\n")
                && kubeconfig.contains("client-key-data: ")
        );
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        Authority::load_or_create(dir.path()).expect("made");
        fs::write(dir.path().join("ca.key"), "nonsense").expect("written");
        let error = Authority::load_or_create(dir.path()).expect_err("damaged").to_string();
        assert!(error.contains("ca.key is damaged") && error.contains("remove it"), "{error}");
    }
}
