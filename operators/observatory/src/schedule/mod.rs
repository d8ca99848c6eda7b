//! Runs at given times: an Observatory with a schedule makes Observatories without one.
//!
//! ```text
//!   schedule, now, what was decided before ──plan──▶ runs to make, runs to end
//! ```
//!
//! A run's name is that of its schedule and its minute, and the time up to which everything is
//! decided stands in the status. So a time makes one run, whoever decides and however often.

mod controller;
mod cron;
mod plan;

pub(crate) use self::controller::controller;
pub use self::cron::{Cron, CronError, ZoneError, time_zone};
pub use self::plan::{Clockwork, Plan, Situation, plan};
