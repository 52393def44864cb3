//! Finds likely secrets in a text that is not valid TOML.
//!
//! The file must not contain secrets, and the reader of a valid document refuses a secret without showing it.
//! A text with a missing quote has no keys and values yet, and the line that an error message shows may
//! contain the secret.

use std::ops::Range;

/// Returns the spans of everything under `[credentials]` and of the values of keys that sound like a secret.
pub(super) fn likely(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let (mut start, mut is_under_credentials) = (0, false);
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            is_under_credentials = is_credentials(trimmed.trim_start_matches('['));
        } else if let Some((key, _)) = line.split_once('=') {
            if is_under_credentials || is_credentials(key) || sounds_secret(key) {
                spans.push(start + key.len() + 1..end);
            }
        } else if is_under_credentials {
            spans.push(start..end);
        }
        start = end;
    }
    spans
}

fn is_credentials(name: &str) -> bool {
    name.trim_start_matches(['"', '\'', ' ', '\t']).starts_with("credentials")
}

fn sounds_secret(key: &str) -> bool {
    let key = key.trim_end_matches(['"', '\'', ' ', '\t']);
    ["token", "secret", "password"].iter().any(|word| key.ends_with(word))
}

#[cfg(test)]
mod tests {
    use crate::PolicySet;

    #[test]
    fn a_broken_line_does_not_show_its_secret() {
        for text in [
            "[credentials.a]\nkind = \"token\"\ntoken = \"hunter2\n",
            "[credentials.a]\ntoken = hunter2\n",
            "[credentials.a]\ntokn = hunter2\n",
            "[credentials]\na = { kind = \"token\", token = 'hunter2 }\n",
            "credentials.a.x = hunter2\n",
            "[credentials.a]\ntoken = \"x\"\ntoken = \"hunter2\"\n",
            "[credentials.a]\ntoken = \"\"\"\nhunter2\n\\x\"\"\"\n",
            "[oops\nclient_secret = hunter2\n",
        ] {
            let problems = PolicySet::from_toml(text).unwrap_err().to_string();
            assert!(!problems.contains("hunter2"), "{problems}");
        }
    }

    #[test]
    fn the_rest_is_shown() {
        let problems = PolicySet::from_toml("[credentials]\n[policies.x]\nbase = 1s\n").unwrap_err();
        assert!(problems.to_string().contains("base = 1s"), "{problems}");
    }
}
