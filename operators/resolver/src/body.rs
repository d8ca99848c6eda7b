//! Bodies on their way through: never read here, only passed on.

use crate::pool::Lent;
use crate::target::{Permit, Target};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The body of a request to a pod.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// What the client sends, as it sends it.
    Streaming(Incoming),
    /// None, as in a request that is sent again.
    Empty,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Streaming(body) => Pin::new(body).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Streaming(body) => body.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Streaming(body) => body.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

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

/// Counts a request as running.
pub(crate) struct Running(Arc<Target>);

impl Running {
    pub(crate) fn begin(target: Arc<Target>) -> Self {
        target.stats.began();
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
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Streaming(body, carried) => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                // At the end the connection is good for another request, and the pod has room.
                if (frame.is_none() || body.is_end_stream())
                    && let Some(Carried { running, permit, lent }) = carried.take()
                {
                    lent.give_back();
                    drop((running, permit));
                }
                Poll::Ready(frame)
            }
        }
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
