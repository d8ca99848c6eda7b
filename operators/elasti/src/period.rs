//! When sleeping is allowed.

use crate::types::EnabledPeriod;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Whether sleeping is allowed at this time.
///
/// # Errors
/// When the schedule or the duration is not understood, in words for the user.
pub(crate) fn allows(period: &EnabledPeriod, now: Timestamp) -> Result<bool, String> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(&period.schedule).map_err(|error| {
        format!("spec.enabledPeriod.schedule: {:?} is not a schedule: {error}", period.schedule)
    })?;
    let lasts = duration(&period.duration).ok_or_else(|| {
        format!(
            "spec.enabledPeriod.duration: {:?} is not a duration; write one such as 8h or 1h30m",
            period.duration
        )
    })?;
    // It is on if it began within the time that it lasts.
    let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
    let from = now.checked_sub(lasts).unwrap_or(Timestamp::MIN).to_zoned(TimeZone::UTC);
    let began = cron.find_next_occurrence(&from, false);
    Ok(began.is_ok_and(|began| began.timestamp() <= now))
}

/// Reads `1h30m` and the like: `h`, `m`, `s` and `ms`, largest first or not.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let letters = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match rest.get(..letters)? {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        rest = rest.get(letters..)?;
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(schedule: &str, duration: &str, now: &str) -> Result<bool, String> {
        let period = EnabledPeriod { schedule: schedule.into(), duration: duration.into() };
        allows(&period, now.parse().expect("a time"))
    }

    #[test]
    fn sleeping_is_allowed_within_the_period_only() {
        for (schedule, duration, now, expected) in [
            ("0 0 * * *", "24h", "2026-03-03T15:00:00Z", true),
            ("0 20 * * *", "8h", "2026-03-03T21:00:00Z", true),
            ("0 20 * * *", "8h", "2026-03-04T03:59:59Z", true),
            ("0 20 * * *", "8h", "2026-03-04T04:30:00Z", false),
            ("0 20 * * *", "8h", "2026-03-03T19:59:59Z", false),
            ("0 9 * * 1-5", "90m", "2026-03-07T09:30:00Z", false),
            ("0 9 * * 1-5", "1h30m", "2026-03-06T10:15:00Z", true),
        ] {
            assert_eq!(at(schedule, duration, now), Ok(expected), "{schedule} {duration} {now}");
        }
    }

    #[test]
    fn what_is_not_understood_names_its_field() {
        let error = at("sometimes", "8h", "2026-03-03T00:00:00Z").expect_err("no schedule");
        assert!(error.starts_with("spec.enabledPeriod.schedule: \"sometimes\""), "{error}");
        for text in ["", "8", "8x", "h", "-1h", "8 h"] {
            let error = at("0 0 * * *", text, "2026-03-03T00:00:00Z").expect_err(text);
            assert!(error.starts_with("spec.enabledPeriod.duration: "), "{error}");
        }
    }
}
