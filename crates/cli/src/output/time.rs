//! Human-readable times.

use std::time::Duration;

/// Formats a time in microseconds to three or four digits: `750µs`, `1.5s`, `2m 5s`, `3h 20m`.
pub(crate) fn human(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{}ms", decimal(us, 1_000)),
        1_000_000..60_000_000 => format!("{}s", decimal(us, 1_000_000)),
        60_000_000..3_600_000_000 => two_units(us / 1_000_000, 60, "m", "s"),
        3_600_000_000..86_400_000_000 => two_units(us / 60_000_000, 60, "h", "m"),
        _ => two_units(us / 3_600_000_000, 24, "d", "h"),
    }
}

/// Formats a duration.
pub(crate) fn time(duration: Duration) -> String {
    human(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// Formats a range of times: `500ms – 1.5s`, or a single time if both ends are equal.
pub(crate) fn range(low_us: u64, high_us: u64) -> String {
    let (low, high) = (human(low_us), human(high_us));
    if low == high { low } else { format!("{low} – {high}") }
}

/// Formats a number with at most three decimals, and with fewer for larger numbers.
fn decimal(us: u64, unit: u64) -> String {
    let (whole, rest) = (us / unit, us % unit * 1_000 / unit);
    let digits = match whole {
        0..10 => 3,
        10..100 => 2,
        _ => 1,
    };
    let fraction: String = format!("{rest:03}").chars().take(digits).collect();
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}

fn two_units(small: u64, per_large: u64, large_name: &str, small_name: &str) -> String {
    let (large, small) = (small / per_large, small % per_large);
    if small == 0 {
        format!("{large}{large_name}")
    } else {
        format!("{large}{large_name} {small}{small_name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let shown = [0, 750, 1_500, 787_500, 1_500_000, 12_345_678, 59_000_000, 125_000_000, 86_400_000_000];
        let words = shown.map(human);
        assert_eq!(words, ["0", "750µs", "1.5ms", "787.5ms", "1.5s", "12.34s", "59s", "2m 5s", "1d"]);
        assert_eq!(range(500_000, 1_500_000), "500ms – 1.5s");
        assert_eq!(range(1_000_000, 1_000_000), "1s");
    }
}
