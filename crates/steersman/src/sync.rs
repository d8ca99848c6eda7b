//! What the queue is built on, in one place, so that a test can put something else there and
//! try out every order in which threads may meet.

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::sleep_until;
