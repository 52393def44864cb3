//! How long tests took the last time, so that the next run starts the longest first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Finished;
use crate::run::root;

const FILE: &str = "target/test-durations.tsv";

/// Returns the seconds of each test, or nothing if there is no record yet.
pub(in super::super) fn read() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let pair = |line: &str| {
        let (seconds, name) = line.split_once('\t')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Records the durations. The record only orders the next run, so a failure to write it is not an error.
pub(super) fn write(finished: &[Finished]) {
    let mut all = read();
    all.extend(finished.iter().map(|done| (done.name.clone(), done.seconds)));
    let text = all.iter().fold(String::new(), |mut text, (name, seconds)| {
        let _ = writeln!(text, "{seconds:.3}\t{name}");
        text
    });
    let _ = std::fs::write(root().join(FILE), text);
}
