//! Times as text.
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;
/// Days of 400 years, after which the calendar repeats, of 100, 4 and 1 years.
const DAYS: [u64; 4] = [146_097, 36_524, 1_461, 365];
/// Days from 1 March of the year 0 to 1 January 1970. Years that begin in March end with the leap day.
const DAYS_BEFORE_1970: u64 = 719_468;

/// Returns the time in UTC, as in RFC 3339: `2026-11-25T21:05:42.123Z`.
pub fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY_SECONDS + DAYS_BEFORE_1970, since.as_secs() % DAY_SECONDS);
    let (cycles, rest) = (days / DAYS[0], days % DAYS[0]);
    // The last day of a long period belongs to its last short one.
    let (centuries, rest) = split(rest, DAYS[1], 3);
    let (leaps, rest) = (rest / DAYS[2], rest % DAYS[2]);
    let (years, day) = split(rest, DAYS[3], 3);
    // From March on, five months have 153 days.
    let month = (5 * day + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, day - (153 * month + 2) / 5 + 1);
    let year = 400 * cycles + 100 * centuries + 4 * leaps + years + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns how many periods of this length a number of days has, at most `periods_max`, and the days left.
fn split(days: u64, period: u64, periods_max: u64) -> (u64, u64) {
    let periods = (days / period).min(periods_max);
    (periods, days - periods * period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_millis(milliseconds)), text);
        }
    }
}
