//! Durations as they are written in the file.

use std::time::Duration;

/// Reads a duration such as `250ms`, `1.5s`, `2m` or `1h 30m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, .. } if unit.is_empty() => {
            format!("the unit is missing; is it \"{0}ms\" or \"{0}s\"?", text.trim())
        }
        humantime::DurationError::Empty => "it is empty".to_owned(),
        error => error.to_string(),
    })
}

/// Writes a duration the way it is read: in the largest unit that leaves no fraction.
pub fn format_duration(duration: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ];
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let whole = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{nanos}ns"), |(name, unit)| format!("{}{name}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for us in [0, 1, 999, 1_000, 1_500_000, 90_000_000, 86_400_000_000, 31_536_000_000_000] {
            let duration = Duration::from_micros(us);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn a_missing_unit_is_named() {
        assert_eq!(
            parse_duration("250"),
            Err("the unit is missing; is it \"250ms\" or \"250s\"?".to_owned())
        );
        assert!(parse_duration("").is_err());
        assert!(parse_duration("-1s").is_err());
    }
}
