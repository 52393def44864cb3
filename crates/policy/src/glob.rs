//! Patterns over operation names: `*` stands for any run of characters, including none.

/// Returns whether the pattern matches the name.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(prefix) else { return false };
    let Some((middles, suffix)) = rest.rsplit_once('*').or(Some(("", rest))) else { return false };
    // The earliest match of each middle piece leaves the longest rest for the pieces after it.
    for piece in middles.split('*').filter(|piece| !piece.is_empty()) {
        match left.find(piece).and_then(|at| left.get(at + piece.len()..)) {
            Some(after) => left = after,
            None => return false,
        }
    }
    left.ends_with(suffix)
}

/// Returns whether the text is a pattern rather than a name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains('*')
}

/// Returns the specificity of a pattern: the number of characters besides `*`.
pub(crate) fn specificity(pattern: &str) -> usize {
    pattern.chars().filter(|character| *character != '*').count()
}

/// Returns whether some name matches both patterns.
pub(crate) fn overlap(left: &str, right: &str) -> bool {
    if left.is_empty() || right.is_empty() {
        return left.bytes().chain(right.bytes()).all(|byte| byte == b'*');
    }
    let (left_prefix, left_rest) = head(left);
    let (right_prefix, right_rest) = head(right);
    let prefixes_agree = left_prefix.starts_with(right_prefix) || right_prefix.starts_with(left_prefix);
    let (left_tail, right_tail) = (tail(left_rest), tail(right_rest));
    match (left_rest, right_rest) {
        (None, None) => left == right,
        (None, Some(_)) => matches(right, left),
        (Some(_), None) => matches(left, right),
        // With a star on both sides, the middle pieces of both patterns can be concatenated.
        (Some(_), Some(_)) => {
            prefixes_agree && (left_tail.ends_with(right_tail) || right_tail.ends_with(left_tail))
        }
    }
}

fn head(pattern: &str) -> (&str, Option<&str>) {
    pattern.split_once('*').map_or((pattern, None), |(prefix, rest)| (prefix, Some(rest)))
}

fn tail(rest: Option<&str>) -> &str {
    rest.map_or("", |rest| rest.rsplit_once('*').map_or(rest, |(_, tail)| tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_run() {
        for (pattern, name) in [
            ("user.*", "user.login"),
            ("user.*", "user."),
            ("*", ""),
            ("*.login", "user.login"),
            ("a*b*c", "abc"),
            ("a*b*c", "a--b--b-c"),
            ("*a*", "a"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} should match {name}");
        }
    }

    #[test]
    fn other_statuses_need_an_exact_code() {
        for (pattern, name) in [
            ("user.*", "users.login"),
            ("a*b*c", "acb"),
            ("login", "log"),
            ("a*a", "a"),
            ("*.x", "x"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, name), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn overlap_means_a_common_name() {
        assert!(overlap("user.*", "*.login"));
        assert!(overlap("a*", "ab*"));
        assert!(!overlap("a*", "b*"));
        assert!(!overlap("*.x", "*.y"));
        assert!(overlap("user.login", "user.*"));
        assert!(!overlap("user.login", "user.logout"));
    }
}
