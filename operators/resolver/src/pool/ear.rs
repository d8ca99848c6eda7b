//! Hears what a connection says to itself, so that nobody is woken for it.
//!
//! A connection that is moved by the request on it sends itself messages: the request, the head of the
//! answer, pieces of its body. Each of them would wake the task that runs at that moment, which would then
//! run a second time for nothing. What comes from outside wakes it as ever.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Nobody moves the connection: whatever comes is news for the task.
const AWAY: u8 = 0;
/// The connection is being moved, and has said nothing.
const LISTENING: u8 = 1;
/// The connection is being moved, and has said something.
const HEARD: u8 = 2;

/// So often in a row is a connection moved that has more to say to itself.
const ROUNDS: usize = 4;

/// The ear of one connection.
pub(super) struct Ear {
    state: AtomicU8,
    /// The last task that moved the connection, which is woken for it.
    task: Mutex<Waker>,
}

impl Ear {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(AWAY), task: Mutex::new(Waker::noop().clone()) })
    }

    /// What is said from now on will be looked after at once, by [`Ear::listen`].
    pub(super) fn begin(&self) {
        self.state.store(LISTENING, Ordering::Release);
    }

    /// Takes a step, and again while the connection says something meanwhile. A step that is not ready has
    /// moved the connection and is woken by what comes later.
    pub(super) fn listen<T>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        let waker = Waker::from(Arc::clone(self));
        let mut inner = Context::from_waker(&waker);
        for _ in 0..ROUNDS {
            self.begin();
            let polled = step(&mut inner);
            let heard = self.state.swap(AWAY, Ordering::AcqRel) == HEARD;
            if polled.is_ready() || !heard {
                return polled;
            }
        }
        // It would go on like this; others have their turn first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let listening = self.state.compare_exchange(LISTENING, HEARD, Ordering::AcqRel, Ordering::Acquire);
        if listening == Err(AWAY) {
            self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes steps until one says nothing; how many those were, and how often the task was woken.
    fn run(talks: usize) -> (usize, usize, Poll<()>) {
        let (count, ear) = (Arc::new(Count(AtomicUsize::new(0))), Ear::new());
        let waker = Waker::from(Arc::clone(&count));
        let mut steps = 0;
        let polled = ear.listen(&mut Context::from_waker(&waker), |cx| {
            steps += 1;
            if steps <= talks {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        });
        (steps, count.0.load(Ordering::SeqCst), polled)
    }

    #[test]
    fn what_is_said_during_a_step_leads_to_another_and_wakes_nobody() {
        assert_eq!(run(0), (1, 0, Poll::Pending));
        assert_eq!(run(2), (3, 0, Poll::Pending));
    }

    #[test]
    fn one_that_talks_without_end_lets_others_go_first() {
        assert_eq!(run(1000), (ROUNDS, 1, Poll::Pending));
    }

    #[test]
    fn what_comes_later_wakes_the_task_that_listened_last() {
        let (count, ear) = (Arc::new(Count(AtomicUsize::new(0))), Ear::new());
        let mut kept = None;
        for waker in [Waker::noop().clone(), Waker::from(Arc::clone(&count))] {
            let polled = ear.listen(&mut Context::from_waker(&waker), |cx| {
                kept.get_or_insert_with(|| cx.waker().clone());
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
        }
        kept.expect("a waker").wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
