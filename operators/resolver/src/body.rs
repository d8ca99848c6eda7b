//! The body of an answer on its way to a client: never read here, only passed on.

use crate::pool::{One, Pool, Streams};
use crate::target::{Permit, Target};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// The body of an answer to a client.
pub(crate) enum Answer {
    /// Our own words.
    Text(Option<Bytes>),
    /// What a pod sends, as it sends it.
    Streaming(Incoming, Option<Carried>),
}

/// What an answer holds on to until its end.
pub(crate) struct Carried {
    pub(crate) running: Running,
    pub(crate) permit: Permit,
    pub(crate) lent: Lent,
}

/// The connection that an answer comes over.
pub(crate) enum Lent {
    /// Of HTTP/1.1, and good for another request afterwards.
    One(One, Pool),
    /// A stream of HTTP/2, whose place is given up at the end.
    Two { _place: Streams },
}

/// Counts a request as running.
pub(crate) struct Running(Arc<Target>);

impl Running {
    pub(crate) fn begin(target: Arc<Target>, now: Instant) -> Self {
        target.stats.began(now);
        Self(target)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stats.ended();
    }
}

impl Answer {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// The body of a pod's answer.
    pub(crate) fn streaming(body: Incoming, carried: Carried) -> Self {
        if body.is_end_stream() {
            carried.end();
            return Self::Text(None);
        }
        Self::Streaming(body, Some(carried))
    }
}

impl Carried {
    /// The answer is through: its connection is good for another, and the pod has room.
    fn end(self) {
        if let Lent::One(one, pool) = self.lent {
            pool.keep(self.permit.address, one);
        }
        drop((self.running, self.permit));
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let (body, carried) = match self.get_mut() {
            Self::Text(text) => return Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Streaming(body, carried) => (body, carried),
        };
        let frame = ready!(match carried {
            Some(Carried { lent: Lent::One(one, _), .. }) => {
                one.poll(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
            }
            _ => Pin::new(&mut *body).poll_frame(cx),
        });
        if (frame.is_none() || body.is_end_stream())
            && let Some(carried) = carried.take()
        {
            carried.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Streaming(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Streaming(body, _) => body.size_hint(),
        }
    }
}
