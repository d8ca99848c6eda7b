//! A clock for the heads of requests that costs next to nothing while clients behave.
//!
//! hyper starts a timer for every head that it waits for and drops it when the head is there. With a
//! real timer that is work for every request, for something that hardly ever happens. These are only
//! dates: whoever serves the connection looks at it again now and then (see [`LOOKS`]), and a date
//! that has passed is noticed then.

use hyper::rt::{Sleep, Timer};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// How often a connection is looked at within the time that a head may take.
pub(crate) const LOOKS: u32 = 8;

/// Makes dates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dates;

/// Is over after a point in time, for those who ask. It wakes nobody.
struct Date(Instant);

impl Future for Date {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() < self.0 { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Sleep for Date {}

impl Timer for Dates {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Date(Instant::now() + duration))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Date(Instant::from_std(deadline)))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}
