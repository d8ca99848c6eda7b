//! Runs on a schedule.

mod cron;

pub use self::cron::{Cron, CronError, ZoneError, time_zone};
