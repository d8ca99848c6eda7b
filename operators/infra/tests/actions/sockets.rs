//! Servers that do what no framework would let them do.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a server does once it has read the head of a request.
#[derive(Clone)]
pub(crate) enum Then {
    /// Says this and closes the connection.
    Say(Vec<u8>),
    /// Says nothing, and keeps the connection.
    Keep,
}

async fn answer(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, then: Then) {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    match then {
        Then::Say(bytes) => {
            // The other side may have heard enough.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Then::Keep => std::future::pending().await,
    }
}

/// Serves on loopback until the runtime ends.
pub(crate) async fn plain(then: Then) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, then.clone()));
        }
    });
    format!("http://{address}")
}

/// The same over TLS, for the name `localhost`; with the authority that has signed for it.
pub(crate) async fn secured(then: Then) -> (String, CertificateDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).expect("a certificate").der().clone();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
        .expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, then) = (acceptor.clone(), then.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, then).await;
                }
            });
        }
    });
    (format!("https://localhost:{port}"), root)
}
