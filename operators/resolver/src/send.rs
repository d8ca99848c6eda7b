//! Sending one request to one pod, and again where that is safe.

use crate::body::Lent;
use crate::forward::Forwarder;
use crate::outgoing::{Outgoing, Rewind};
use crate::pool::{One, Two, Used};
use crate::target::Permit;
use hyper::body::{Body, Incoming};
use hyper::http::request::Parts;
use hyper::{Request, Response, Version};
use std::error::Error;
use std::net::SocketAddr;

/// What came back for a request that was sent, or not.
pub(crate) enum Sent {
    Answer(Response<Incoming>, Lent),
    /// The request as it was: no pod can have processed it.
    Unsent(Request<Outgoing>),
    /// It may have been processed, or is too long to start over.
    Failed(String),
}

impl Forwarder {
    /// Sends a request to the pod of a permit.
    pub(crate) async fn send(&self, request: Request<Outgoing>, permit: &Permit, upgrade: Upgrade) -> Sent {
        if request.version() == Version::HTTP_2 {
            return self.send_two(request, permit).await;
        }
        let address = permit.address;
        let mut one = match self.pool.one(address).await {
            Ok(one) => one,
            Err(error) => return unreachable(request, address, &error),
        };
        permit.reached();
        let spare = (one.used == Used::Before).then(|| Spare::of(&request)).flatten();
        let rewind = request.body().rewind();
        self.prepare(&mut one, &request, upgrade, address);
        let again = match exchange_one(one, request, address).await {
            Ok((response, one)) => return self.answered(response, one, &rewind),
            // The pod closed an idle connection at the wrong moment.
            Err(Sent::Unsent(request)) => request,
            Err(failed) => match spare.and_then(|spare| spare.request(&rewind)) {
                Some(again) => again,
                None => return failed,
            },
        };
        let mut one = match self.pool.fresh(address).await {
            Ok(one) => one,
            Err(error) => return unreachable(again, address, &error),
        };
        self.prepare(&mut one, &again, upgrade, address);
        match exchange_one(one, again, address).await {
            Ok((response, one)) => self.answered(response, one, &rewind),
            Err(sent) => sent,
        }
    }

    fn answered(&self, response: Response<Incoming>, one: One, rewind: &Rewind) -> Sent {
        rewind.forget();
        Sent::Answer(response, Lent::One(one, self.pool.clone()))
    }

    /// A body must go on being sent while its answer is not read, and a connection that is to
    /// change its protocol must outlive the request: both need a task.
    fn prepare(&self, one: &mut One, request: &Request<Outgoing>, upgrade: Upgrade, address: SocketAddr) {
        if upgrade == Upgrade::Asked || !request.body().is_end_stream() {
            self.pool.drive(one, address);
        }
    }

    async fn send_two(&self, request: Request<Outgoing>, permit: &Permit) -> Sent {
        let address = permit.address;
        let (parts, body) = request.into_parts();
        let idempotent = parts.method.is_idempotent();
        let rewind = body.rewind();
        let (mut parts, mut body) = (parts, body);
        // A pod that says no more often than this has more to say than no.
        for _ in 0..3 {
            let spare = parts.clone();
            let Two { mut sender, streams } = match self.pool.two(address).await {
                Ok(two) => two,
                Err(error) => return unreachable(Request::from_parts(parts, body), address, &error),
            };
            permit.reached();
            let mut error = match sender.try_send_request(Request::from_parts(parts, body)).await {
                Ok(response) => {
                    rewind.forget();
                    return Sent::Answer(response, Lent::Two { _place: streams });
                }
                Err(error) => error,
            };
            drop(streams);
            (parts, body) = match error.take_message() {
                Some(request) => request.into_parts(),
                None => {
                    let again = refused(error.error()) || (idempotent && cut_off(error.error()));
                    match again.then(|| rewind.again()).flatten() {
                        Some(body) => (spare, body),
                        None => return failed(address, error.error()),
                    }
                }
            };
        }
        Sent::Unsent(Request::from_parts(parts, body))
    }
}

/// Whether a request asks for another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    No,
    Asked,
}

/// The head of a request that may be sent again although the pod may have seen it: its method
/// says that twice is like once.
struct Spare(Parts);

impl Spare {
    fn of(request: &Request<Outgoing>) -> Option<Self> {
        if !request.method().is_idempotent() {
            return None;
        }
        let mut copy = Request::new(());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        Some(Self(copy.into_parts().0))
    }

    fn request(self, rewind: &Rewind) -> Option<Request<Outgoing>> {
        Some(Request::from_parts(self.0, rewind.again()?))
    }
}

async fn exchange_one(
    mut one: One,
    request: Request<Outgoing>,
    address: SocketAddr,
) -> Result<(Response<Incoming>, One), Sent> {
    match one.exchange(request).await {
        Ok(response) => Ok((response, one)),
        Err(mut error) => Err(match error.take_message() {
            Some(request) => Sent::Unsent(request),
            None => failed(address, error.error()),
        }),
    }
}

/// Whether the pod says that it has not looked at the request.
fn refused(error: &hyper::Error) -> bool {
    two(error).is_some_and(|error| error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Whether the connection ended under the request.
fn cut_off(error: &hyper::Error) -> bool {
    two(error).is_some_and(|error| error.is_go_away() || error.is_io())
        || error.is_closed()
        || error.is_canceled()
}

fn two(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

fn unreachable(request: Request<Outgoing>, address: SocketAddr, error: &std::io::Error) -> Sent {
    tracing::debug!(%address, %error, "a pod cannot be reached");
    Sent::Unsent(request)
}

fn failed(address: SocketAddr, error: &hyper::Error) -> Sent {
    Sent::Failed(format!("the pod at {address} did not answer: {error}"))
}
