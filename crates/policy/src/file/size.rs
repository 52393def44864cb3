//! The text form of sizes in the file.

/// The accepted units, the largest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a size such as `256KiB` or `1 MiB`; returns the reason if the text is invalid.
pub(super) fn parse(text: &str) -> Result<u64, String> {
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
    let Some((_, bytes)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(unit));
    };
    let size = number.parse().ok().and_then(|number: u64| number.checked_mul(*bytes));
    size.ok_or_else(|| "it is too large".to_owned())
}

/// Suggests a unit instead of guessing: `KB` means 1000 bytes in some programs and 1024 in others.
fn unknown_unit(unit: &str) -> String {
    let letter = unit.chars().next().unwrap_or_default().to_ascii_uppercase();
    let hint = UNITS.iter().find(|(name, _)| name.starts_with(letter)).map_or_else(
        || "the units are B, KiB, MiB and GiB".to_owned(),
        |(name, _)| format!("did you mean \"{name}\"?"),
    );
    format!("\"{unit}\" is not a unit; {hint}")
}

/// Formats a size for [`parse`]: in the largest unit that leaves no fraction.
pub(super) fn format(size: u64) -> String {
    let whole = UNITS.iter().find(|(_, bytes)| size > 0 && size.is_multiple_of(*bytes));
    whole.map_or_else(|| format!("{size}B"), |(name, bytes)| format!("{}{name}", size / bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for size in [0, 1, 1023, 1024, 262_144, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse(&format(size)), Ok(size));
        }
        assert_eq!(parse(" 1 MiB "), Ok(1 << 20));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| parse(text).unwrap_err();
        assert_eq!(wrong("1024"), "the unit is missing; is it \"1024B\" or \"1024KiB\"?");
        assert_eq!(wrong("256kb"), "\"kb\" is not a unit; did you mean \"KiB\"?");
        assert_eq!(wrong("1M"), "\"M\" is not a unit; did you mean \"MiB\"?");
        assert_eq!(wrong("1 page"), "\"page\" is not a unit; the units are B, KiB, MiB and GiB");
        assert_eq!(wrong("-1KiB"), "it is negative");
        assert_eq!(wrong("1.5MiB"), "a whole number and a unit are expected");
        assert_eq!(wrong(""), "a whole number and a unit are expected");
        assert_eq!(wrong("99999999999GiB"), "it is too large");
        assert_eq!(wrong("ü"), "a whole number and a unit are expected");
    }
}
