//! Durations as Go writes them, and parts of times.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Reads a duration such as `1h30m` or `-1.5s`.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 12 || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?;
        if !fraction.is_empty() {
            let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            nanos += fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale;
        }
        rest = tail;
    }
    let nanos = if negative { -nanos } else { nanos };
    i64::try_from(nanos).ok().map(SignedDuration::from_nanos)
}

/// A duration in seconds, as its text is.
pub(super) fn show(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let (sign, nanos) = if nanos < 0 { ("-", -nanos) } else { ("", nanos) };
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        format!("{sign}{whole}s")
    } else {
        let fraction = format!("{rest:09}");
        format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
    }
}

/// A part of a time, by the name of the function that asks for it.
pub(super) fn part(function: &str, time: Timestamp, zone: Option<&str>) -> Option<i64> {
    let zone = match zone {
        None => TimeZone::UTC,
        Some(zone) => TimeZone::get(zone).ok()?,
    };
    let time: Zoned = time.to_zoned(zone);
    Some(match function {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return None,
    })
}
