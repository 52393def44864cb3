//! Cleans messages before they are stored: short, on one line, and without text that looks like a secret.

use holdoff_policy::is_unprintable;

/// The maximum number of characters of a stored message.
const LONGEST: usize = 500;

/// The words that precede a secret, in lower case.
const SECRET_PREFIXES: [&str; 10] = [
    "bearer ",
    "basic ",
    "password=",
    "passwd=",
    "secret=",
    "token=",
    "api_key=",
    "apikey=",
    "authorization:",
    "password:",
];

/// Truncates a message, and hides text that looks like a secret.
pub(crate) fn scrub(message: &str) -> String {
    let line: String =
        message.chars().map(|sign| if is_unprintable(sign) { ' ' } else { sign }).take(LONGEST).collect();
    let mut text = hide_passwords(&line);
    for prefix in SECRET_PREFIXES {
        text = hide_after(&text, prefix);
    }
    text
}

/// Hides the word after every occurrence of `prefix`.
fn hide_after(text: &str, prefix: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    while let Some(found) = lower.get(rest..).and_then(|left| left.find(prefix)) {
        let start = rest + found + prefix.len();
        let left = text.get(start..).unwrap_or_default();
        let gap = left.len() - left.trim_start().len();
        let word = left.trim_start().find([' ', '&', '"', '\'', ',', ';']).unwrap_or(left.trim_start().len());
        out.push_str(text.get(rest..start + gap).unwrap_or_default());
        if word > 0 {
            out.push('…');
        }
        rest = start + gap + word;
    }
    out.push_str(text.get(rest..).unwrap_or_default());
    out
}

/// Hides `user:password` in URLs.
fn hide_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("://") {
        let (before, after) = rest.split_at(found + 3);
        out.push_str(before);
        let end = after.find([' ', '/', '"', '\'', '?']).unwrap_or(after.len());
        let (authority, behind) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                out.push_str("…@");
                out.push_str(host);
            }
            None => out.push_str(authority),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted() {
        let hidden = |text: &str| scrub(text);
        assert_eq!(hidden("got Bearer abc.def back"), "got Bearer … back");
        assert_eq!(hidden("?token=abc&x=1"), "?token=…&x=1");
        assert_eq!(hidden("postgres://me:pw@db/x"), "postgres://…@db/x");
        assert_eq!(hidden("Authorization: Basic Zm9v"), "Authorization: … …");
        assert_eq!(hidden("https://host/path plain"), "https://host/path plain");
        assert_eq!(hidden("password="), "password=");
    }

    #[test]
    fn messages_become_short_and_one_line() {
        assert_eq!(scrub("a\nb\x1b[31m"), "a b [31m");
        assert_eq!(scrub(&"ä".repeat(2000)).chars().count(), LONGEST);
    }
}
