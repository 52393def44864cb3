//! Every metric is documented, and every documented metric exists.

use std::collections::BTreeSet;

use super::File;

const DOCUMENT: &str = "docs/metrics.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let sources =
        files.iter().filter(|file| file.has_extension("rs") && file.path.iter().any(|part| part == "src"));
    let in_code: BTreeSet<&str> = sources.flat_map(|file| names(&file.text, '"')).collect();
    let document = files.iter().find(|file| file.path.as_os_str() == DOCUMENT);
    let in_document: BTreeSet<&str> = document.into_iter().flat_map(|file| names(&file.text, '`')).collect();
    let missing =
        in_code.difference(&in_document).map(|name| format!("{DOCUMENT} does not mention the metric {name}"));
    let stale = in_document
        .difference(&in_code)
        .map(|name| format!("{DOCUMENT} mentions {name}, which does not exist"));
    missing.chain(stale).collect()
}

/// Quoted words that are metric names: `holdoff_` and at least two more parts.
fn names(text: &str, quote: char) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        let characters = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        word.starts_with("holdoff_") && characters && word.matches('_').count() >= 3
    };
    text.split(quote).filter(is_name)
}
