//! An API server that does its work on threads of its own, as it does where it is another process.

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::runtime::Handle;
use tower::{BoxError, service_fn};

/// The same client, whose requests are worked on by the threads of `server`.
pub(crate) fn apart(client: &Client, server: &Handle) -> Client {
    let (client, server) = (client.clone(), server.clone());
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let answer = server.spawn(async move { client.send(request).await });
        async move { answer.await?.map_err(BoxError::from) }
    });
    Client::new(service, "default")
}
