//! Formatting for display: durations, numbers, bars, and JSON over several lines. Pure.

use std::iter;
use std::time::Duration;

use holdoff_work::Moment;

/// Formats a duration in its two largest units, such as `2m 5s`; short ones to the millisecond.
pub(super) fn time(time: Duration) -> String {
    let two = |large: u64, small: u64, [larger, smaller]: [&str; 2]| match small {
        0 => format!("{large}{larger}"),
        _ => format!("{large}{larger} {small}{smaller}"),
    };
    let seconds = time.as_secs();
    match seconds {
        0 if time.subsec_millis() == 0 && !time.is_zero() => "<1ms".to_owned(),
        0 if time.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", time.subsec_millis()),
        1..10 => format!("{:.1}s", time.as_secs_f64()).replace(".0s", "s"),
        10..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, seconds % 60, ["m", "s"]),
        3600..86_400 => two(seconds / 3600, seconds % 3600 / 60, ["h", "m"]),
        _ => two(seconds / 86_400, seconds % 86_400 / 3600, ["d", "h"]),
    }
}

/// Formats a duration in whole seconds, for values that change while they are displayed.
pub(super) fn coarse(span: Duration) -> String {
    time(Duration::from_secs(span.as_secs()))
}

/// Formats a duration that may be short, to about two digits.
pub(super) fn fine(span: Duration) -> String {
    match span.as_micros() {
        us @ 0..1000 => format!("{us}\u{202f}µs"),
        us @ 1000..10_000 => format!("{}.{}ms", us / 1000, us % 1000 / 100),
        _ => time(span),
    }
}

/// Formats a number of bytes in the largest unit that fits, to a tenth below 100 units.
pub(super) fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let fits = |(power, unit): (u32, &&'static str)| Some((1_u64.checked_shl(10 * (power + 1))?, *unit));
    let largest = (0..).zip(&units).filter_map(fits).take_while(|(size, _)| count >= *size).last();
    let Some((size, unit)) = largest else { return format!("{count} B") };
    let tenths = u128::from(count) * 10 / u128::from(size);
    match (tenths / 10, tenths % 10) {
        (whole @ 0..100, part @ 1..) => format!("{whole}.{part} {unit}"),
        (whole, _) => format!("{whole} {unit}"),
    }
}

/// Formats the time since or until a moment.
pub(super) fn relative(now: Moment, then: Moment) -> String {
    let (past, future) = (now.since(then), then.since(now));
    if past < Duration::from_secs(1) && future < Duration::from_secs(1) {
        return "now".to_owned();
    }
    if future > past { format!("in {}", coarse(future)) } else { format!("{} ago", coarse(past)) }
}

/// Formats a number with a thin space between thousands.
pub(super) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a number and its noun, in the singular or plural.
pub(super) fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { more })
}

/// Returns a share of the largest in per cent, for bars. A part above zero is always visible.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0".to_owned();
    }
    let tenths = (u128::from(part) * 1000 / u128::from(whole)).clamp(10, 1000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A name, its count, and the count as a share of the largest.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) count: u64,
    /// The width, in per cent.
    pub(super) width: String,
    /// The link to the details; empty if there is none.
    pub(super) link: String,
    /// An additional note.
    pub(super) note: String,
}

/// Builds the bars of these items, in their order.
pub(super) fn bars(items: Vec<(String, u64, String, String)>) -> Vec<Bar> {
    let most = items.iter().map(|(_, count, ..)| *count).max().unwrap_or(0);
    let bar = |(name, count, link, note)| Bar { name, count, width: percent(count, most), link, note };
    items.into_iter().map(bar).collect()
}

/// Formats JSON over several lines. Returns a text unchanged if it is not JSON or is nested too deeply.
pub(super) fn pretty_json(text: &str) -> String {
    if serde_json::from_str::<serde_json::Value>(text).is_err() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let line =
        |out: &mut String, depth: usize| out.extend(iter::once("\n").chain(iter::repeat_n("  ", depth)));
    let mut last = ' ';
    for (character, is_quoted) in characters(text) {
        let is_end = !is_quoted && matches!(character, '}' | ']');
        if is_end {
            depth = depth.saturating_sub(1);
        }
        let is_empty = is_end && matches!(last, '{' | '[');
        if !is_empty && (is_end || matches!(last, '{' | '[' | ',')) {
            line(&mut out, depth);
        }
        out.push(character);
        // A character within quotes is not punctuation, and neither is the closing quote.
        last = if is_quoted { '"' } else { character };
        match last {
            '{' | '[' => depth += 1,
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

/// Formats JSON on one line.
pub(super) fn compact_json(text: &str) -> String {
    characters(text).map(|(character, _)| character).collect()
}

/// Iterates over all characters except whitespace outside of quotes, and tells whether each is within quotes.
fn characters(text: &str) -> impl Iterator<Item = (char, bool)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let classify = move |character: char| {
        let was_quoted = is_quoted;
        if character == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = was_quoted && character == '\\' && !is_escaped;
        (character, was_quoted)
    };
    text.chars().map(classify).filter(|(character, is_quoted)| *is_quoted || !character.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_two_units() {
        let shown = [0, 7, 900, 1500, 9000, 59_000, 60_000, 125_000, 7_200_000, 90_000_000]
            .map(|ms| time(Duration::from_millis(ms)));
        assert_eq!(shown, ["0s", "7ms", "900ms", "1.5s", "9s", "59s", "1m", "2m 5s", "2h", "1d 1h"]);
        assert_eq!(time(Duration::from_micros(20)), "<1ms");
    }

    #[test]
    fn relative_times_distinguish_past_and_future() {
        let at = |second: i64| Moment::from_micros(second * 1_000_000);
        assert_eq!(relative(at(100), at(100)), "now");
        assert_eq!(relative(at(100), at(40)), "1m ago");
        assert_eq!(relative(at(100), at(105)), "in 5s");
    }

    #[test]
    fn short_durations_and_bytes_are_formatted() {
        let shown = [0, 135, 1250, 9999, 25_000, 1_500_000].map(|us| fine(Duration::from_micros(us)));
        assert_eq!(shown, ["0\u{202f}µs", "135\u{202f}µs", "1.2ms", "9.9ms", "25ms", "1.5s"]);
        let shown = [0, 1023, 1024, 1536, 64 << 20, (3 << 30) + (1 << 29), 700 << 10, u64::MAX].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "3.5 GiB", "700 KiB", "16777215 TiB"]
        );
    }

    #[test]
    fn numbers_are_formatted_with_thin_spaces() {
        assert_eq!(number(7), "7");
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(many(1, "step", "steps"), "1 step");
        assert_eq!(many(1000, "step", "steps"), "1\u{202f}000 steps");
        assert_eq!(
            ["0", "1.0", "33.3", "100.0"],
            [percent(0, 9), percent(1, 5000), percent(1, 3), percent(9, 9)]
        );
    }

    #[test]
    fn json_is_formatted_over_several_lines() {
        for text in [
            "{}",
            "[]",
            "null",
            "[1,[],{}]",
            r#"{"a":[1,{"b":"x, {y}: [z]"}],"c \" \\":"\\","d":{"e":[]}}"#,
            r#"["",",","{","\"",":"]"#,
        ] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(pretty_json(text), serde_json::to_string_pretty(&value).unwrap());
            assert_eq!(compact_json(&pretty_json(text)), text);
        }
    }

    #[test]
    fn numbers_keep_their_digits_and_keys_their_order() {
        let text = r#"{"z":1.50,"a":123456789012345678901234567890,"m":1E3}"#;
        assert_eq!(compact_json(&pretty_json(text)), text);
        assert!(pretty_json(text).contains("\"z\": 1.50,\n"));
    }

    #[test]
    fn text_that_is_not_json_stays_unchanged() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for text in ["{oops", "", &deep] {
            assert_eq!(pretty_json(text), text);
        }
    }
}
