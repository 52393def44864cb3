//! Formatting of JSON over several lines, and back. Pure. Only whitespace changes: numbers keep their digits and keys
//! their order.

use std::iter;

/// Formats JSON over several lines. Returns a text unchanged if it is not JSON or is nested too deeply.
pub(super) fn spread(text: &str) -> String {
    if serde_json::from_str::<serde_json::Value>(text).is_err() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let line =
        |out: &mut String, depth: usize| out.extend(iter::once("\n").chain(iter::repeat_n("  ", depth)));
    let mut last = ' ';
    for (sign, is_quoted) in signs(text) {
        let is_end = !is_quoted && matches!(sign, '}' | ']');
        if is_end {
            depth = depth.saturating_sub(1);
        }
        let is_empty = is_end && matches!(last, '{' | '[');
        if !is_empty && (is_end || matches!(last, '{' | '[' | ',')) {
            line(&mut out, depth);
        }
        out.push(sign);
        // A character within quotes is not punctuation, and neither is the closing quote.
        last = if is_quoted { '"' } else { sign };
        match last {
            '{' | '[' => depth += 1,
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

/// Formats JSON on one line.
pub(super) fn join(text: &str) -> String {
    signs(text).map(|(sign, _)| sign).collect()
}

/// Iterates over all characters except whitespace outside of quotes, and tells whether each is within quotes.
fn signs(text: &str) -> impl Iterator<Item = (char, bool)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let told = move |sign: char| {
        let was_quoted = is_quoted;
        if sign == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = was_quoted && sign == '\\' && !is_escaped;
        (sign, was_quoted)
    };
    text.chars().map(told).filter(|(sign, is_quoted)| *is_quoted || !sign.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_spread_as_people_expect() {
        for text in [
            "{}",
            "[]",
            "null",
            "[1,[],{}]",
            r#"{"a":[1,{"b":"x, {y}: [z]"}],"c \" \\":"\\","d":{"e":[]}}"#,
            r#"["",",","{","\"",":"]"#,
        ] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(spread(text), serde_json::to_string_pretty(&value).unwrap());
            assert_eq!(join(&spread(text)), text);
        }
    }

    #[test]
    fn numbers_and_names_stay_as_they_were_written() {
        let text = r#"{"z":1.50,"a":123456789012345678901234567890,"m":1E3}"#;
        assert_eq!(join(&spread(text)), text);
        assert!(spread(text).contains("\"z\": 1.50,\n"));
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for text in ["{oops", "", &deep] {
            assert_eq!(spread(text), text);
        }
    }
}
