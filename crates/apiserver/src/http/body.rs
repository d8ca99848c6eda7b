//! The body of an answer: whole, or a stream that never promises an end.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

/// What the server answers with. Never fails: a stream that must stop simply ends.
pub struct Body(Inner);

enum Inner {
    Empty,
    Whole(Bytes),
    /// More than should lie in memory at once.
    Large(Box<dyn Iterator<Item = Bytes> + Send>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// No bytes at all.
    pub fn empty() -> Self {
        Self(Inner::Empty)
    }

    /// These chunks, as they come.
    pub fn stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Inner::Stream(Box::pin(chunks)))
    }

    /// These pieces, each made when it is sent.
    pub(crate) fn large(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self(Inner::Large(Box::new(pieces)))
    }

    /// The same bytes with other pieces, where it is made of such.
    pub(crate) fn map_large<P: Iterator<Item = Bytes> + Send + 'static>(
        self,
        change: impl FnOnce(Box<dyn Iterator<Item = Bytes> + Send>) -> P,
    ) -> Result<Self, Self> {
        match self.0 {
            Inner::Large(pieces) => Ok(Self::large(change(pieces))),
            other => Err(Self(other)),
        }
    }

    /// The bytes, when they are all there already.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Inner::Whole(bytes) => Some(bytes),
            Inner::Empty | Inner::Large(_) | Inner::Stream(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(Inner::Whole(bytes.into()))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Inner::Empty => "Body(empty)",
            Inner::Whole(_) => "Body(whole)",
            Inner::Large(_) => "Body(large)",
            Inner::Stream(_) => "Body(stream)",
        })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Empty => Poll::Ready(None),
            Inner::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Inner::Large(pieces) => Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece)))),
            Inner::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Whole(bytes) => bytes.is_empty(),
            Inner::Large(_) | Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Large(_) | Inner::Stream(_) => SizeHint::default(),
        }
    }
}
