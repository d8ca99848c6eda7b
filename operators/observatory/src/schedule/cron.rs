//! Cron expressions in a time zone.

use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// When something is due: five fields of cron in a time zone.
///
/// Where clocks are put forward, a time that does not exist is due at the first one that does.
/// Where they are put back, a time of day is due once; what is due every hour or every few
/// minutes goes on through both hours.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not understood.
    #[error(
        "{text:?} is not a schedule: {why}; write minute, hour, day of month, month and day of week, such as \"0 */6 * * *\""
    )]
    Pattern {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Understood, but never due.
    #[error("{0:?} is never due; no such day exists")]
    Never(String),
    /// The time zone does not exist.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

/// There is no such time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}; write a name such as Europe/Berlin or UTC")]
pub struct ZoneError(String);

/// The time zone of this name.
///
/// # Errors
/// When there is none.
pub fn time_zone(name: &str) -> Result<TimeZone, ZoneError> {
    TimeZone::get(name).map_err(|_| ZoneError(name.to_owned()))
}

impl Cron {
    /// Reads a schedule; without a time zone it is in UTC.
    ///
    /// # Errors
    /// When it is not a schedule, or never due.
    pub fn new(text: &str, zone: Option<&str>) -> Result<Self, CronError> {
        let zone = zone.map_or(Ok(TimeZone::UTC), time_zone)?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let pattern = parser.parse(text).map_err(|error| CronError::Pattern {
            text: text.to_owned(),
            why: error.to_string().trim_end_matches('.').to_owned(),
        })?;
        let cron = Self { pattern, zone };
        // Any day that exists comes within eight years, even over a leap year that is left out.
        match cron.after(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never(text.to_owned())),
        }
    }

    /// The first time after this one at which it is due.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = time.to_zoned(self.zone.clone());
        let next = self.pattern.find_next_occurrence(&from, false).ok()?;
        Some(next.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn due(text: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let cron = Cron::new(text, Some(zone)).expect("a schedule");
        std::iter::successors(cron.after(at(from)), |time| cron.after(*time))
            .take(count)
            .map(|time| time.to_string())
            .collect()
    }

    #[test]
    fn schedules_are_due_in_their_time_zone() {
        assert_eq!(
            due("0 */6 * * *", "UTC", "2026-01-01T00:00:00Z", 2),
            ["2026-01-01T06:00:00Z", "2026-01-01T12:00:00Z"]
        );
        assert_eq!(
            due("30 9 * * 1-5", "America/New_York", "2026-01-02T20:00:00Z", 1),
            ["2026-01-05T14:30:00Z"]
        );
        assert_eq!(due("@daily", "Asia/Tokyo", "2026-01-01T00:00:00Z", 1), ["2026-01-01T15:00:00Z"]);
    }

    #[test]
    fn a_time_that_does_not_exist_is_due_at_the_first_that_does() {
        // Berlin, 29 March 2026: 02:00 becomes 03:00.
        assert_eq!(
            due("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_is_due_once() {
        // Berlin, 25 October 2026: 03:00 becomes 02:00.
        assert_eq!(
            due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }

    #[test]
    fn what_is_due_every_hour_goes_on_through_the_change() {
        assert_eq!(
            due("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 3),
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]
        );
    }

    #[test]
    fn what_is_no_schedule_says_how_to_write_one() {
        for text in ["", "* * * *", "61 * * * *", "* * * * * *", "sometimes", "0 0 30 2 *"] {
            let error = Cron::new(text, None).expect_err(text).to_string();
            assert!(error.contains("is not a schedule: ") || error.contains("is never due"), "{error}");
        }
        assert_eq!(
            Cron::new("0 0 * * *", Some("Mars/Olympus")).expect_err("no such zone").to_string(),
            "there is no time zone \"Mars/Olympus\"; write a name such as Europe/Berlin or UTC"
        );
    }
}
