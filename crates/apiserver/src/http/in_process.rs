//! The server as a function call: for clients in the same process, without sockets.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};

use super::{Body, BoxError};
use crate::server::{Server, User};

/// A service that a client of Kubernetes can use as its transport. Watches are streams.
///
/// Works under a paused clock: nothing runs on other threads unless the store does.
#[derive(Clone)]
pub struct InProcess {
    server: Server,
    user: User,
}

impl InProcess {
    pub(crate) fn new(server: Server, user: User) -> Self {
        Self { server, user }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("user", &self.user).finish_non_exhaustive()
    }
}

impl<B> tower_service::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { server, user } = self.clone();
        Box::pin(
            async move { Ok(super::answer(&server.engine, &user, request, &server.engine.closing).await) },
        )
    }
}
