//! An API server alone, without controllers and nodes: `serve <data-dir> <port> [memory]`.
//!
//! Writes `<data-dir>/kubeconfig` and serves until it is told to stop.

use std::{error::Error, net::Ipv4Addr, path::PathBuf, sync::Arc};

use steersman_apiserver::{
    LoopbackEndpoints, Options, Server, User,
    auth::{Authority, Credentials},
    store::{Store, StoreOptions},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(dir), Some(port)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err("usage: serve <data-dir> <port> [memory]".into());
    };
    let authority = Authority::load_or_create(&dir.join("pki"))?;
    let store = match arguments.next().as_deref() {
        Some("memory") => Store::memory(StoreOptions::default()),
        _ => Store::sqlite(&dir.join("store.db"), StoreOptions::default())?,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse()?)).await?;
    let address = listener.local_addr()?;
    let options = Options {
        loopback_endpoints: LoopbackEndpoints::Accept,
        authenticator: Some(Arc::new(authority.authenticator())),
        ..Options::default()
    };
    let server = Server::open(store, options).await?;
    let admin = authority.issue_client(&User::admin())?;
    let kubeconfig = authority.kubeconfig(&format!("https://{address}"), Credentials::Certificate(&admin));
    std::fs::write(dir.join("kubeconfig"), kubeconfig)?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let waiting = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    server.serve(listener, authority.serving_identity(), shutdown).await?;
    waiting.abort();
    Ok(())
}
