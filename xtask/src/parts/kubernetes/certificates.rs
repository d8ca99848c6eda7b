//! The certificates of a control plane: one authority for servers, clients and proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::parts::{Folder, ProcessError};

pub(super) const CA_CERTIFICATE: &str = "ca.crt";
pub(super) const CA_KEY: &str = "ca.key";

/// A client's certificate and key, as PEM files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user's name, which is the certificate's common name.
    pub user: String,
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// Signs the certificates of one control plane.
pub(super) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority, its certificate and key written into the folder.
    pub(super) fn new(folder: &Folder) -> Result<Self, ProcessError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed("a key"))?;
        let certificate = params.self_signed(&key).map_err(failed("the authority"))?.pem();
        folder.write(CA_CERTIFICATE, &certificate)?;
        folder.write(CA_KEY, &key.serialize_pem())?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// A certificate for a server on loopback.
    pub(super) fn server(&self, folder: &Folder, name: &str) -> Result<Identity, ProcessError> {
        let mut params = subject(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![
            SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            // The first address of the Service range is the API server's own Service.
            SanType::IpAddress(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))),
        ];
        for dns in ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
            let dns = dns.try_into().map_err(failed("a name"))?;
            params.subject_alt_names.push(SanType::DnsName(dns));
        }
        self.sign(folder, name, params)
    }

    /// A certificate for a client; the group is what decides over its rights.
    pub(super) fn identity(
        &self,
        folder: &Folder,
        user: &str,
        group: &str,
    ) -> Result<Identity, ProcessError> {
        let mut params = subject(user, Some(group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(folder, user, params)
    }

    /// A kubeconfig that holds the certificates themselves, so that the file can be copied.
    pub(super) fn kubeconfig(
        &self,
        folder: &Folder,
        server: &str,
        identity: &Identity,
    ) -> Result<PathBuf, ProcessError> {
        let encoded = |path: &Path| {
            std::fs::read(path)
                .map(|pem| BASE64.encode(pem))
                .map_err(ProcessError::setup(format!("reading {}", path.display())))
        };
        let text = format!(
            "\
apiVersion: v1
kind: Config
current-context: kubernetes
clusters:
- name: kubernetes
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts:
- name: kubernetes
  context:
    cluster: kubernetes
    user: {user:?}
users:
- name: {user:?}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
",
            authority = BASE64.encode(&self.certificate),
            user = identity.user,
            certificate = encoded(&identity.certificate)?,
            key = encoded(&identity.key)?,
        );
        folder.write(&format!("{}.kubeconfig", file_name(&identity.user)), &text)
    }

    fn sign(
        &self,
        folder: &Folder,
        name: &str,
        mut params: CertificateParams,
    ) -> Result<Identity, ProcessError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed("a key"))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed("a certificate"))?;
        let file = file_name(name);
        Ok(Identity {
            user: name.to_owned(),
            certificate: folder.write(&format!("{file}.crt"), &certificate.pem())?,
            key: folder.write(&format!("{file}.key"), &key.serialize_pem())?,
        })
    }
}

/// The key pair that service account tokens are signed and checked with.
pub(super) struct SigningKey {
    pub(super) private: PathBuf,
    pub(super) public: PathBuf,
}

impl SigningKey {
    pub(super) fn new(folder: &Folder) -> Result<Self, ProcessError> {
        let key = KeyPair::generate().map_err(failed("a key"))?;
        Ok(Self {
            private: folder.write("service-accounts.key", &key.serialize_pem())?,
            public: folder.write("service-accounts.pub", &key.public_key_pem())?,
        })
    }
}

fn subject(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

fn failed(what: &str) -> impl FnOnce(rcgen::Error) -> ProcessError {
    move |error| ProcessError::Setup(format!("making {what} for Kubernetes: {error}"))
}

/// A user's name, such as `system:node:a`, as the name of a file.
fn file_name(user: &str) -> String {
    user.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}
