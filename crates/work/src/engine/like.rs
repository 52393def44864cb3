//! Patterns for SQL's LIKE, with `\` as the escape.

/// Returns a pattern in which `*` matches any sequence of characters.
pub(crate) fn glob(pattern: &str) -> String {
    escaped(pattern).replace('*', "%")
}

/// Returns a pattern that matches every string containing this text.
pub(crate) fn containing(text: &str) -> String {
    format!("%{}%", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stars_are_special() {
        assert_eq!(glob("card.*"), "card.%");
        assert_eq!(glob("100%_a\\b"), "100\\%\\_a\\\\b");
        assert_eq!(containing("50%"), "%50\\%%");
    }
}
