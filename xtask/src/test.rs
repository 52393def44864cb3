//! `cargo xtask test`: the checks that CI runs, and with `--deep` everything else.
//!
//! The runner builds and lints the workspace in one pass, starts one process per test, and ends with a table of phases
//! and the slowest tests.

mod build;
mod catalogue;
mod coverage;
mod deep;
mod report;
mod runner;

use std::path::{Path, PathBuf};

use holdoff_testbed::{DEEP_VARIABLE, Options, Postgres, SHARED_VARIABLE};

use crate::run::{Done, cargo};
use crate::{axe, needs, tidy};
use build::Build;
use catalogue::{Catalogue, Depth};
use report::Report;
use runner::{Job, Runner};

const USAGE: &str = "\
usage: cargo xtask test [--deep] [FILTER...]
       cargo xtask test --repeat N NAME

  FILTER      runs only the tests whose names contain one of these
  --deep      runs everything else, too: all seeds, long chaos, every page at every width, fuzzing, schemathesis,
              rustdoc, combinations of features
  --repeat N  runs the tests whose names contain NAME, N times each, while other processes keep every core busy
";

/// What the command line asks for.
enum Request<'a> {
    Suite { depth: Depth, filters: Vec<&'a str> },
    Repeat { times: u32, name: &'a str },
}

/// `cargo xtask test …`
pub(crate) fn run(arguments: &[&str]) -> Done {
    match parse(arguments)? {
        Request::Suite { depth, filters } if filters.is_empty() => suite(depth),
        Request::Suite { depth, filters } => some(depth, &filters),
        Request::Repeat { times, name } => repeat(times, name),
    }
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Request<'a>, String> {
    match arguments {
        ["--repeat", times, name] => match times.parse() {
            Ok(times @ 1..) => Ok(Request::Repeat { times, name }),
            _ => Err(format!("--repeat takes a number from 1 on, not {times:?}\n\n{USAGE}")),
        },
        ["--deep", filters @ ..] if is_plain(filters) => {
            Ok(Request::Suite { depth: Depth::Deep, filters: filters.to_vec() })
        }
        filters if is_plain(filters) => Ok(Request::Suite { depth: Depth::Quick, filters: filters.to_vec() }),
        _ => Err(format!("cannot read {:?}\n\n{USAGE}", arguments.join(" "))),
    }
}

fn is_plain(filters: &[&str]) -> bool {
    filters.iter().all(|filter| !filter.starts_with('-'))
}

/// Runs all phases. A phase that fails ends the run, and the report is printed all the same.
fn suite(depth: Depth) -> Done {
    let mut report = Report::new();
    let done = phases(depth, &mut report);
    report.print();
    done
}

fn phases(depth: Depth, report: &mut Report) -> Done {
    report.phase("format", || cargo(&["fmt", "--all", "--check"], &[]))?;
    report.phase("tidy", tidy::run)?;
    // Packages are downloaded and unpacked while the compiler works.
    let needs = std::thread::spawn(needs);
    let build = report.phase("build and lint", build::workspace)?;
    let axe = report.phase("install what is missing", || {
        needs.join().map_err(|_| "the installation panicked".to_owned())?
    })?;
    let catalogue = report.phase("list tests", || Catalogue::suite(&build, depth))?;
    report.left_out(&catalogue);
    let environment = environment(&axe)?;
    let results = report.phase("tests", || {
        let results = run_jobs(&build, &catalogue.jobs, depth, environment)?;
        results.print_failures();
        Ok(results)
    })?;
    let outcome = results.outcome();
    report.add(results);
    outcome?;
    report.phase("doc tests", build::doc_tests)?;
    if depth == Depth::Deep {
        deep::phases(&build, report)?;
    }
    Ok(())
}

/// Installs what the tests need; returns the path of axe-core.
fn needs() -> Result<PathBuf, String> {
    needs::meet()?;
    axe::install()
}

fn environment(axe: &Path) -> Result<Vec<(String, String)>, String> {
    let axe = axe.to_str().ok_or("the path of this folder is not valid UTF-8")?.to_owned();
    Ok(vec![(axe::VARIABLE.to_owned(), axe)])
}

/// Builds, and runs the tests whose names contain one of the filters.
fn some(depth: Depth, filters: &[&str]) -> Done {
    let mut report = Report::new();
    let done = (|| {
        let build = report.phase("build and lint", build::workspace)?;
        let jobs = Catalogue::named(&build, filters)?;
        let environment = environment(&report.phase("install what is missing", needs)?)?;
        let results = report.phase("tests", || run_jobs(&build, &jobs, depth, environment))?;
        results.print_failures();
        let outcome = results.outcome();
        report.add(results);
        outcome
    })();
    report.print();
    done
}

/// Runs the tests with this name again and again on a machine whose cores are all busy.
fn repeat(times: u32, name: &str) -> Done {
    let mut report = Report::new();
    let done = (|| {
        let build = report.phase("build and lint", build::workspace)?;
        let jobs = Catalogue::named(&build, &[name])?;
        let environment = environment(&report.phase("install what is missing", needs)?)?;
        let all: Vec<Job> = (0..times).flat_map(|_| jobs.iter().cloned()).collect();
        let _load = runner::Load::on_every_core()?;
        let results = report.phase("tests", || run_jobs(&build, &all, Depth::Quick, environment))?;
        results.print_failures();
        eprintln!("\n{} tests, {times} times each:", jobs.len());
        results.print_repetitions();
        let outcome = results.outcome();
        report.add(results);
        outcome
    })();
    report.print();
    done
}

/// Runs tests against one Postgres cluster, each test with databases of its own.
fn run_jobs(
    build: &Build,
    jobs: &[Job],
    depth: Depth,
    mut environment: Vec<(String, String)>,
) -> Result<runner::Results, String> {
    // Several test processes at a time open pools of their own.
    let settings = vec![("max_connections".to_owned(), "600".to_owned())];
    let postgres = Postgres::start_with(&Options { settings, ..Options::default() });
    environment.push((SHARED_VARIABLE.to_owned(), postgres.port().to_string()));
    environment.extend(build.environment());
    if depth == Depth::Deep {
        environment.push((DEEP_VARIABLE.to_owned(), "1".to_owned()));
    }
    Runner::new(depth, environment).run(jobs, || postgres.drop_abandoned_databases())
}
