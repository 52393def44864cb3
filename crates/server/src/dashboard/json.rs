//! JSON for people: written over several lines, and back. Pure. Nothing else of it changes: numbers stay as they were
//! written, however long they are, and names in their order.

use std::iter;

/// Over several lines. Of what is no JSON, or too deep to be read, nothing is changed.
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
        // A sign within quotes means nothing; neither does a quote that ends them.
        last = if is_quoted { '"' } else { sign };
        match last {
            '{' | '[' => depth += 1,
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

/// On one line.
pub(super) fn join(text: &str) -> String {
    signs(text).map(|(sign, _)| sign).collect()
}

/// Every sign but the white ones between others, and whether it is within quotes.
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
