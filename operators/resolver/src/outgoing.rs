//! The body of a request on its way to a pod, which may have to start over at another one.

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// How much of a body is kept until the pod answers, so that it can be sent again.
const KEPT: usize = 64 * 1024;

/// The body of a request to a pod.
pub(crate) enum Outgoing {
    /// None.
    Empty,
    /// What the client sends, as it sends it.
    Streaming {
        source: Arc<Mutex<Source>>,
        /// Which attempt this is; older ones get nothing any more.
        attempt: u32,
        /// How many of the kept pieces this attempt has sent.
        sent: usize,
    },
}

/// A body that is being read, and its beginning.
pub(crate) struct Source {
    body: Incoming,
    length: SizeHint,
    attempt: u32,
    kept: Vec<Bytes>,
    size: usize,
    trailers: Option<HeaderMap>,
    /// Whether all that was read is kept.
    whole: bool,
}

/// A way to start a body over.
pub(crate) struct Rewind(Option<Arc<Mutex<Source>>>);

impl Outgoing {
    pub(crate) fn new(body: Incoming) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        let length = body.size_hint();
        let source =
            Source { body, length, attempt: 0, kept: Vec::new(), size: 0, trailers: None, whole: true };
        Self::Streaming { source: Arc::new(Mutex::new(source)), attempt: 0, sent: 0 }
    }

    /// A way to start over, to be taken before the body is given away.
    pub(crate) fn rewind(&self) -> Rewind {
        match self {
            Self::Empty => Rewind(None),
            Self::Streaming { source, .. } => Rewind(Some(Arc::clone(source))),
        }
    }
}

impl Rewind {
    /// The body from its beginning, if all that was read of it is still there.
    pub(crate) fn again(&self) -> Option<Outgoing> {
        let Some(source) = &self.0 else { return Some(Outgoing::Empty) };
        let mut state = lock(source);
        state.whole.then(|| {
            state.attempt += 1;
            Outgoing::Streaming { source: Arc::clone(source), attempt: state.attempt, sent: 0 }
        })
    }

    /// The pod has answered: nothing need be kept any more.
    pub(crate) fn forget(&self) {
        if let Some(source) = &self.0 {
            let mut state = lock(source);
            state.whole = false;
            state.kept = Vec::new();
        }
    }
}

impl Source {
    fn poll(&mut self, sent: &mut usize, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Some(bytes) = self.kept.get(*sent) {
            *sent += 1;
            return Poll::Ready(Some(Ok(Frame::data(bytes.clone()))));
        }
        if let Some(trailers) = &self.trailers {
            // A second attempt: the client has said all that it had to say.
            let first = std::mem::replace(sent, usize::MAX) != usize::MAX;
            return Poll::Ready(first.then(|| Ok(Frame::trailers(trailers.clone()))));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if self.whole {
            match frame.data_ref() {
                Some(bytes) if self.size + bytes.len() <= KEPT => {
                    self.size += bytes.len();
                    self.kept.push(bytes.clone());
                    *sent = self.kept.len();
                }
                Some(_) => {
                    self.whole = false;
                    self.kept = Vec::new();
                }
                None => {
                    self.trailers = frame.trailers_ref().cloned();
                    *sent = usize::MAX;
                }
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

type Fault = Box<dyn Error + Send + Sync>;

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self::Streaming { source, attempt, sent } = self.get_mut() else { return Poll::Ready(None) };
        let mut state = lock(source);
        if state.attempt != *attempt {
            return Poll::Ready(Some(Err("the request has gone to another pod".into())));
        }
        state.poll(sent, cx)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming { source, sent, .. } => {
                let state = lock(source);
                let rest = state.kept.len() > *sent || (state.trailers.is_some() && *sent != usize::MAX);
                !rest && state.body.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            // Asked for before anything is sent, which is when it matters.
            Self::Streaming { source, sent: 0, .. } => lock(source).length,
            Self::Streaming { source, .. } => lock(source).body.size_hint(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
