//! The tests of all binaries, and the selection of a run.

use std::process::Command;

use super::build::{Binary, Build};
use super::coverage::{self, LeftOut};
use super::runner::{Job, read_durations};

/// The depth of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// `cargo xtask test`
    Quick,
    /// `cargo xtask test --deep`
    Deep,
}

/// The tests to run, the longest first, and the number of those left out.
#[derive(Default)]
pub(super) struct Catalogue {
    pub(super) jobs: Vec<Job>,
    pub(super) deep_only: usize,
    pub(super) without_kubernetes: usize,
}

impl Catalogue {
    /// Lists the tests of a suite.
    pub(super) fn suite(build: &Build, depth: Depth) -> Result<Self, String> {
        let all = all(build)?;
        let names: Vec<String> = all.iter().map(|job| job.name.clone()).collect();
        let stale = coverage::stale(&names);
        if !stale.is_empty() {
            return Err(format!(
                "xtask/src/test/coverage.rs names tests that do not exist: {}",
                stale.join(", ")
            ));
        }
        let mut catalogue = Self::default();
        for job in all {
            match coverage::left_out(&job.name, depth) {
                None => catalogue.jobs.push(job),
                Some(LeftOut::DeepOnly) => catalogue.deep_only += 1,
                Some(LeftOut::NoKubernetes) => catalogue.without_kubernetes += 1,
            }
        }
        Ok(catalogue)
    }

    /// Lists the tests whose names contain one of these.
    pub(super) fn named(build: &Build, names: &[String]) -> Result<Vec<Job>, String> {
        let mut jobs = all(build)?;
        jobs.retain(|job| names.iter().any(|name| job.name.contains(name.as_str())));
        if jobs.is_empty() {
            let names = names.join("' or '");
            let example = "holdoff-policy it laws::the_cap_holds_at_every_attempt";
            return Err(format!("no test has '{names}' in its name; a full name is like '{example}'"));
        }
        Ok(jobs)
    }
}

/// All tests, the longest first: short ones fill the gaps that long ones leave at the end.
fn all(build: &Build) -> Result<Vec<Job>, String> {
    let durations = read_durations();
    let mut jobs = Vec::new();
    for binary in &build.binaries {
        for test in tests(binary)? {
            let name = format!("{} {test}", binary.name);
            let expected = durations.get(&name).copied();
            jobs.push(Job { name, test, path: binary.path.clone(), folder: binary.folder.clone(), expected });
        }
    }
    jobs.sort_by(|a, b| b.expected_or_usual().total_cmp(&a.expected_or_usual()));
    Ok(jobs)
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
