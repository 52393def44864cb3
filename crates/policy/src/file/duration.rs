//! The text form of durations in the file.

use std::time::Duration;

/// The accepted units. There are no months or years: policies never wait that long, and `M` is easily
/// confused with `m`.
const UNITS: &[&str] = &[
    "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes", "h",
    "hour", "hours", "d", "day", "days",
];

/// Parses a duration such as `250ms`, `1.5s`, `2m` or `1h 30m`; returns the reason if the text is invalid.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.starts_with('-') {
        return Err("it is negative".to_owned());
    }
    if text.parse::<f64>().is_ok() && text != "0" {
        return Err(format!("the unit is missing; is it \"{text}ms\" or \"{text}s\"?"));
    }
    let is_unit = |word: &&str| UNITS.contains(word);
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    if let Some(unknown) = words.clone().find(|word| !is_unit(word)) {
        let lower = unknown.to_lowercase();
        let hint = UNITS.iter().find(|unit| **unit == lower).map_or_else(
            || "the units are us, ms, s, m, h and d".to_owned(),
            |unit| format!("did you mean \"{unit}\"?"),
        );
        return Err(format!("\"{unknown}\" is not a unit; {hint}"));
    }
    let duration = humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => "it is too long".to_owned(),
        _ => "a number and a unit are expected".to_owned(),
    })?;
    if duration.subsec_nanos().is_multiple_of(1_000) {
        return Ok(duration);
    }
    Err("it is finer than a microsecond".to_owned())
}

/// Formats a duration for [`parse_duration`]: in the largest unit that leaves no fraction.
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
    fn words_and_fractions_are_read() {
        for (text, ms) in
            [("1.5s", 1_500), ("1h 30m", 5_400_000), ("2 minutes", 120_000), ("0", 0), (" 7ms ", 7)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| parse_duration(text).unwrap_err();
        assert_eq!(wrong("250"), "the unit is missing; is it \"250ms\" or \"250s\"?");
        assert_eq!(wrong("5M"), "\"M\" is not a unit; did you mean \"m\"?");
        assert_eq!(wrong("5S"), "\"S\" is not a unit; did you mean \"s\"?");
        assert_eq!(wrong("1y"), "\"y\" is not a unit; the units are us, ms, s, m, h and d");
        assert_eq!(wrong("-5s"), "it is negative");
        assert_eq!(wrong("1.5us"), "it is finer than a microsecond");
        assert_eq!(wrong(""), "it is empty");
        assert_eq!(wrong("s"), "a number and a unit are expected");
        assert_eq!(wrong("99999999999999999999d"), "it is too long");
    }
}
