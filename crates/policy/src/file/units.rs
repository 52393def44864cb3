//! The text form of durations and sizes in the file.

use std::time::Duration;

/// The accepted units. There are no months or years: policies never wait that long, and `M` is easily
/// confused with `m`.
const DURATION_UNITS: &[&str] = &[
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
    let is_unit = |word: &&str| DURATION_UNITS.contains(word);
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    if let Some(unknown) = words.clone().find(|word| !is_unit(word)) {
        let lower = unknown.to_lowercase();
        let hint = DURATION_UNITS.iter().find(|unit| **unit == lower).map_or_else(
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

/// The accepted units, the largest first.
const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a size such as `256KiB` or `1 MiB`; returns the reason if the text is invalid.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let unit = unit.trim();
    if text.starts_with('-') {
        return Err("it is negative".to_owned());
    }
    if number.is_empty() || unit.starts_with(['.', ',', '_']) {
        return Err("a whole number and a unit are expected".to_owned());
    }
    if unit.is_empty() {
        return Err(format!("the unit is missing; is it \"{number}B\" or \"{number}KiB\"?"));
    }
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_size_unit(unit));
    };
    let size = number.parse().ok().and_then(|number: u64| number.checked_mul(*bytes));
    size.ok_or_else(|| "it is too large".to_owned())
}

/// Suggests a unit instead of guessing: `KB` means 1000 bytes in some programs and 1024 in others.
fn unknown_size_unit(unit: &str) -> String {
    let letter = unit.chars().next().unwrap_or_default().to_ascii_uppercase();
    let hint = SIZE_UNITS.iter().find(|(name, _)| name.starts_with(letter)).map_or_else(
        || "the units are B, KiB, MiB and GiB".to_owned(),
        |(name, _)| format!("did you mean \"{name}\"?"),
    );
    format!("\"{unit}\" is not a unit; {hint}")
}

/// Formats a size for [`parse_size`]: in the largest unit that leaves no fraction.
pub(super) fn format_size(size: u64) -> String {
    let whole = SIZE_UNITS.iter().find(|(_, bytes)| size > 0 && size.is_multiple_of(*bytes));
    whole.map_or_else(|| format!("{size}B"), |(name, bytes)| format!("{}{name}", size / bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_duration_parses() {
        for us in [0, 1, 999, 1_000, 1_500_000, 90_000_000, 86_400_000_000, 31_536_000_000_000] {
            let duration = Duration::from_micros(us);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn words_and_fractions_are_accepted() {
        for (text, ms) in
            [("1.5s", 1_500), ("1h 30m", 5_400_000), ("2 minutes", 120_000), ("0", 0), (" 7ms ", 7)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_has_a_reason() {
        let reason = |text: &str| parse_duration(text).unwrap_err();
        assert_eq!(reason("250"), "the unit is missing; is it \"250ms\" or \"250s\"?");
        assert_eq!(reason("5M"), "\"M\" is not a unit; did you mean \"m\"?");
        assert_eq!(reason("5S"), "\"S\" is not a unit; did you mean \"s\"?");
        assert_eq!(reason("1y"), "\"y\" is not a unit; the units are us, ms, s, m, h and d");
        assert_eq!(reason("-5s"), "it is negative");
        assert_eq!(reason("1.5us"), "it is finer than a microsecond");
        assert_eq!(reason(""), "it is empty");
        assert_eq!(reason("s"), "a number and a unit are expected");
        assert_eq!(reason("99999999999999999999d"), "it is too long");
    }

    #[test]
    fn a_formatted_size_parses() {
        for size in [0, 1, 1023, 1024, 262_144, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse_size(&format_size(size)), Ok(size));
        }
        assert_eq!(parse_size(" 1 MiB "), Ok(1 << 20));
    }

    #[test]
    fn an_invalid_size_has_a_reason() {
        let reason = |text: &str| parse_size(text).unwrap_err();
        assert_eq!(reason("1024"), "the unit is missing; is it \"1024B\" or \"1024KiB\"?");
        assert_eq!(reason("256kb"), "\"kb\" is not a unit; did you mean \"KiB\"?");
        assert_eq!(reason("1M"), "\"M\" is not a unit; did you mean \"MiB\"?");
        assert_eq!(reason("1 page"), "\"page\" is not a unit; the units are B, KiB, MiB and GiB");
        assert_eq!(reason("-1KiB"), "it is negative");
        assert_eq!(reason("1.5MiB"), "a whole number and a unit are expected");
        assert_eq!(reason(""), "a whole number and a unit are expected");
        assert_eq!(reason("99999999999GiB"), "it is too large");
        assert_eq!(reason("ü"), "a whole number and a unit are expected");
    }
}
