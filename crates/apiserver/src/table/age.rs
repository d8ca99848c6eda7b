//! How long ago: `42s`, `5m3s`, `7h`, `3d4h`, `2y`.

use jiff::Timestamp;

/// The time from `since` to `now`, as short as still tells enough.
pub fn human_duration(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// Two units, the second one only where there is something of it.
fn two(first: i64, unit: &str, second: i64, smaller: &str) -> String {
    if second == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{second}{smaller}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_short_as_still_tells_enough() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (30_000, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_000_000, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            let now = since + jiff::SignedDuration::from_secs(seconds);
            assert_eq!(human_duration(since, now), expected, "{seconds}");
        }
    }
}
