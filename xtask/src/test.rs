//! `cargo xtask test`: the checks that CI runs, and with `--deep` everything else.
//!
//! The runner builds and lints the workspace in one pass, starts one process per test, and ends with a table of phases
//! and the slowest tests.

mod build;
mod catalogue;
mod coverage;
mod report;
mod request;
mod runner;

use std::path::{Path, PathBuf};

use holdoff_testbed::{DEEP_VARIABLE, Options, Postgres, SHARED_VARIABLE};

use crate::run::{TaskResult, cargo};
use crate::{n_minus_one, requirements, schemathesis, tidy};
use build::Build;
use catalogue::{Catalogue, Depth};
use report::Report;
pub(crate) use request::{Request, USAGE};
use runner::{Job, Load, Results, Runner};

/// The core without the standard library and the executors without tokio: free of warnings.
const PURE: [&str; 2] = ["holdoff-policy", "holdoff-retry"];

/// The target of browsers, if it is installed.
const BROWSER: &str = "wasm32-unknown-unknown";

/// Engines alone. They leave shared code unused, so they must compile, but may warn.
const ENGINES: [(&str, &str); 6] = [
    ("holdoff", ""),
    ("holdoff-work", "sqlite"),
    ("holdoff-work", "postgres,http"),
    ("holdoff-lock", ""),
    ("holdoff-lock", "postgres"),
    ("holdoff-lock", "sqlite,ledger"),
];

/// Runs the requested tests. A phase that fails ends the run, and the report is printed all the same.
pub(crate) fn run(request: &Request) -> TaskResult {
    let mut report = Report::new();
    let done = match request.names.as_slice() {
        [] => suite(request.depth, &mut report),
        _ => by_name(request, &mut report),
    };
    report.print();
    done
}

fn suite(depth: Depth, report: &mut Report) -> TaskResult {
    report.phase("format", || cargo(&["fmt", "--all", "--check"], &[]))?;
    report.phase("tidy", tidy::run)?;
    // Packages are downloaded and unpacked while the compiler works.
    let installation = std::thread::spawn(install_requirements);
    let build = report.phase("build and lint", || {
        let build = build::workspace()?;
        build.deny_warnings()?;
        Ok(build)
    })?;
    let axe = report.phase("install requirements", || {
        installation.join().map_err(|_| "the installation panicked".to_owned())?
    })?;
    let catalogue = report.phase("list tests", || Catalogue::suite(&build, depth))?;
    report.left_out(&catalogue);
    run_jobs(&build, &catalogue.jobs, depth, &axe, report)?;
    report.phase("doc tests", build::doc_tests)?;
    if depth == Depth::Deep {
        deep_phases(&build, report)?;
    }
    Ok(())
}

/// Runs the tests with these names, also those that a quick suite leaves out.
fn by_name(request: &Request, report: &mut Report) -> TaskResult {
    let build = report.phase("build and lint", build::workspace)?;
    let jobs = Catalogue::named(&build, &request.names)?;
    let axe = report.phase("install requirements", install_requirements)?;
    let Some(times) = request.repeat else {
        return run_jobs(&build, &jobs, request.depth, &axe, report);
    };
    let all: Vec<Job> = (0..times).flat_map(|_| jobs.iter().cloned()).collect();
    let _load = Load::on_every_core()?;
    let done = run_jobs(&build, &all, request.depth, &axe, report);
    report.print_repetitions();
    done
}

/// Installs the programs that the tests need; returns the path of axe-core.
fn install_requirements() -> Result<PathBuf, String> {
    requirements::install()?;
    requirements::install_axe()
}

/// Runs tests against one Postgres cluster, each test with databases of its own.
fn run_jobs(build: &Build, jobs: &[Job], depth: Depth, axe: &Path, report: &mut Report) -> TaskResult {
    // Several test processes at a time open pools of their own.
    let settings = vec![("max_connections".to_owned(), "600".to_owned())];
    let options = Options { settings, ..Options::default() };
    let postgres = report.phase("start Postgres", || Ok(Postgres::start_with(&options)))?;
    let axe = axe.to_str().ok_or("the path of this folder is not valid UTF-8")?;
    let mut environment = build.environment();
    environment.push((SHARED_VARIABLE.to_owned(), postgres.port().to_string()));
    environment.push((requirements::AXE_VARIABLE.to_owned(), axe.to_owned()));
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

/// Runs the phases that only `cargo xtask test --deep` has, beside the tests that `coverage.rs` lists and all seeds.
fn deep_phases(build: &Build, report: &mut Report) -> TaskResult {
    let holdoff = build.program("holdoff")?;
    report.phase("schemathesis", || schemathesis::run(holdoff))?;
    report.phase("features", features)?;
    report.phase("default binary", default_binary)?;
    report.phase("rustdoc", rustdoc)?;
    let Some(commit) = n_minus_one::earlier() else {
        report.skip("a node of an earlier release beside a new one", n_minus_one::SUSPENDED);
        return Ok(());
    };
    report.phase("beside an earlier release", || n_minus_one::run_beside(&commit))
}

/// Combinations of features that users choose.
fn features() -> TaskResult {
    for package in PURE {
        cargo(&["clippy", "--quiet", "-p", package, "--no-default-features", "--", "-D", "warnings"], &[])?;
    }
    let installed = std::process::Command::new("rustup").args(["target", "list", "--installed"]).output();
    if installed.is_ok_and(|list| String::from_utf8_lossy(&list.stdout).contains(BROWSER)) {
        cargo(&["check", "--quiet", "--target", BROWSER, "--no-default-features", "-p", PURE[1]], &[])?;
    }
    for (package, features) in ENGINES {
        let combination = ["-p", package, "--no-default-features", "--features", features];
        cargo(&[["check", "--quiet"].as_slice(), &combination].concat(), &[])?;
    }
    Ok(())
}

/// `cargo run` without a name: cargo must know which binary is meant.
fn default_binary() -> TaskResult {
    cargo(&["run", "--quiet", "--", "policy", "explain", "standard"], &[])
}

fn rustdoc() -> TaskResult {
    let all = ["doc", "--workspace", "--all-features", "--no-deps"];
    let own = ["--exclude", "xtask", "--exclude", "holdoff-bench"];
    cargo(&[all, own].concat(), &[("RUSTDOCFLAGS", "-D warnings")])
}
