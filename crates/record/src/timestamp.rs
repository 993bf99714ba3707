//! Timestamps as text: UTC in ISO 8601, to the second.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;

/// Formats as `2026-11-15T02:10:00Z`. A clock set before 1970 reads as 1970.
pub fn utc_iso(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date_of(seconds / SECONDS_A_DAY);
    let second_of_day = seconds % SECONDS_A_DAY;
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Gregorian year, month and day; day 0 is 1970-01-01.
fn date_of(day_since_1970: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Skip whole cycles of 400 years (146,097 days) first, so that the loop below stays short for any clock.
    let mut year = 1970 + day_since_1970 / 146_097 * 400;
    let mut day = day_since_1970 % 146_097;
    loop {
        let days_in_year = if leap(year) { 366 } else { 365 };
        if day < days_in_year {
            break;
        }
        day -= days_in_year;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days_in_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days_in_month {
            break;
        }
        day -= days_in_month;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_moments_read_as_their_dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (16_725_225_600, "2500-01-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(utc_iso(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
