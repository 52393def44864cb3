//! How long tests took the last time, so that the next run starts the longest first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Finished;
use crate::run::root;

/// A line per test: seconds, seconds of all processors together, name.
const FILE: &str = "target/test-durations.tsv";

/// Returns the seconds of each test, or nothing if there is no record yet.
pub(in super::super) fn read() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let pair = |line: &str| {
        let mut columns = line.split('\t');
        let (seconds, _, name) = (columns.next()?, columns.next()?, columns.next()?);
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Records the durations. The record only orders the next run, so a failure to write it is not an error.
pub(super) fn write(finished: &[Finished]) {
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    let before = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
    lines.extend(before.lines().filter_map(|line| Some((line.rsplit('\t').next()?, line.to_owned()))));
    for done in finished {
        let line = format!("{:.2}\t{:.2}\t{}", done.seconds, done.processor_seconds, done.name);
        lines.insert(&done.name, line);
    }
    let text = lines.values().fold(String::new(), |mut text, line| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{line}");
        text
    });
    let _ = std::fs::write(root().join(FILE), text);
}
