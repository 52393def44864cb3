//! `cargo xtask test`: the checks that CI runs, and with `--deep` everything else.
//!
//! The runner builds and lints the workspace in one pass, starts one process per test, and ends with a table of phases
//! and the slowest tests.

mod build;
mod catalogue;
mod coverage;
mod deep;
mod report;
mod request;
mod runner;

use std::path::{Path, PathBuf};

use holdoff_testbed::{DEEP_VARIABLE, Options, Postgres, SHARED_VARIABLE};

use crate::run::{Done, cargo};
use crate::{axe, needs, tidy};
use build::Build;
use catalogue::{Catalogue, Depth};
use report::Report;
pub(crate) use request::{Request, USAGE};
use runner::{Job, Load, Results, Runner};

/// Runs what was asked for. A phase that fails ends the run, and the report is printed all the same.
pub(crate) fn run(request: &Request) -> Done {
    let mut report = Report::new();
    let done = match request.names.as_slice() {
        [] => suite(request.depth, &mut report),
        _ => by_name(request, &mut report),
    };
    report.print();
    done
}

fn suite(depth: Depth, report: &mut Report) -> Done {
    report.phase("format", || cargo(&["fmt", "--all", "--check"], &[]))?;
    report.phase("tidy", tidy::run)?;
    // Packages are downloaded and unpacked while the compiler works.
    let needs = std::thread::spawn(needs);
    let build = report.phase("build and lint", || {
        let build = build::workspace()?;
        build.deny_warnings()?;
        Ok(build)
    })?;
    let axe = report.phase("install what is missing", || {
        needs.join().map_err(|_| "the installation panicked".to_owned())?
    })?;
    let catalogue = report.phase("list tests", || Catalogue::suite(&build, depth))?;
    report.left_out(&catalogue);
    run_jobs(&build, &catalogue.jobs, depth, &axe, report)?;
    report.phase("doc tests", build::doc_tests)?;
    if depth == Depth::Deep {
        deep::phases(&build, report)?;
    }
    Ok(())
}

/// Runs the tests with these names, also those that a quick suite leaves out.
fn by_name(request: &Request, report: &mut Report) -> Done {
    let build = report.phase("build and lint", build::workspace)?;
    let jobs = Catalogue::named(&build, &request.names)?;
    let axe = report.phase("install what is missing", needs)?;
    let Some(times) = request.repeat else {
        return run_jobs(&build, &jobs, request.depth, &axe, report);
    };
    let all: Vec<Job> = (0..times).flat_map(|_| jobs.iter().cloned()).collect();
    let _load = Load::on_every_core()?;
    let done = run_jobs(&build, &all, request.depth, &axe, report);
    report.print_repetitions();
    done
}

/// Installs what the tests need; returns the path of axe-core.
fn needs() -> Result<PathBuf, String> {
    needs::meet()?;
    axe::install()
}

/// Runs tests against one Postgres cluster, each test with databases of its own.
fn run_jobs(build: &Build, jobs: &[Job], depth: Depth, axe: &Path, report: &mut Report) -> Done {
    // Several test processes at a time open pools of their own.
    let settings = vec![("max_connections".to_owned(), "600".to_owned())];
    let options = Options { settings, ..Options::default() };
    let postgres = report.phase("start Postgres", || Ok(Postgres::start_with(&options)))?;
    let axe = axe.to_str().ok_or("the path of this folder is not valid UTF-8")?;
    let mut environment = build.environment();
    environment.push((SHARED_VARIABLE.to_owned(), postgres.port().to_string()));
    environment.push((axe::VARIABLE.to_owned(), axe.to_owned()));
    if depth == Depth::Deep {
        environment.push((DEEP_VARIABLE.to_owned(), "1".to_owned()));
    }
    let runner = Runner::new(depth, environment);
    let results: Results =
        report.phase("tests", || runner.run(jobs, || postgres.drop_abandoned_databases()))?;
    results.print_failures();
    let outcome = results.outcome();
    report.add(results);
    outcome
}
