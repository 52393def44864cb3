//! The tests of all binaries, and which of them a run leaves to `--deep`.

use std::process::Command;

use super::build::{Binary, Build};
use super::runner::Job;
use super::runner::history;

/// How much a run covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// `cargo xtask test`
    Quick,
    /// `cargo xtask test --deep`
    Deep,
}

/// Tests in a module of this name run only with `--deep`.
const DEEP_MODULE: &str = "deep";

/// The tests to run, the longest first.
pub(super) struct Catalogue {
    pub(super) jobs: Vec<Job>,
    /// The number of tests that a quick run leaves out.
    pub(super) left_to_deep: usize,
}

impl Catalogue {
    /// Asks every binary for its tests. With filters, only tests whose names contain one of them are kept.
    pub(super) fn of(build: &Build, depth: Depth, filters: &[&str]) -> Result<Self, String> {
        let durations = history::read();
        let (mut jobs, mut left_to_deep) = (Vec::new(), 0);
        for binary in &build.binaries {
            for test in tests(binary)? {
                let name = format!("{} {test}", binary.name);
                if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter)) {
                    continue;
                }
                if depth == Depth::Quick && test.split("::").any(|segment| segment == DEEP_MODULE) {
                    left_to_deep += 1;
                    continue;
                }
                let expected = durations.get(&name).copied();
                jobs.push(Job {
                    name,
                    test,
                    path: binary.path.clone(),
                    folder: binary.folder.clone(),
                    expected,
                });
            }
        }
        // Short tests fill the gaps that long ones leave at the end.
        jobs.sort_by(|a, b| b.expected_or_usual().total_cmp(&a.expected_or_usual()));
        Ok(Self { jobs, left_to_deep })
    }
}

/// The names of a binary's tests. Ignored ones are parts of other tests, which start them themselves.
fn tests(binary: &Binary) -> Result<Vec<String>, String> {
    let list = |extra: &[&str]| -> Result<Vec<String>, String> {
        let output = Command::new(&binary.path)
            .args(["--list", "--format", "terse"])
            .args(extra)
            .current_dir(&binary.folder)
            .output()
            .map_err(|error| format!("cannot run {}: {error}", binary.path.display()))?;
        if !output.status.success() {
            return Err(format!("{} does not list its tests", binary.path.display()));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let ignored = list(&["--ignored"])?;
    Ok(list(&[])?.into_iter().filter(|test| !ignored.contains(test)).collect())
}
