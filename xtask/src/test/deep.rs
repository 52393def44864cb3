//! The phases that only `cargo xtask test --deep` has, beside the tests that `coverage.rs` lists and all seeds.

use super::build::Build;
use super::report::Report;
use crate::run::{Done, cargo};
use crate::{n_minus_one, schemathesis};

pub(super) fn phases(build: &Build, report: &mut Report) -> Done {
    let holdoff = build.program("holdoff")?;
    report.phase("schemathesis", || schemathesis::run(holdoff))?;
    report.phase("features", features)?;
    report.phase("front door", front_door)?;
    report.phase("rustdoc", rustdoc)?;
    let Some(commit) = n_minus_one::earlier() else {
        report.skip("a node of an earlier release beside the new one", n_minus_one::SUSPENDED);
        return Ok(());
    };
    report.phase("beside an earlier release", || n_minus_one::run_beside(&commit))
}

/// The core without the standard library and the executors without tokio: free of warnings.
const PURE: [&str; 2] = ["holdoff-policy", "holdoff-retry"];

/// Engines alone. They leave shared code unused, so they must compile, but may warn.
const ENGINES: [(&str, &str); 6] = [
    ("holdoff", ""),
    ("holdoff-work", "sqlite"),
    ("holdoff-work", "postgres,http"),
    ("holdoff-lock", ""),
    ("holdoff-lock", "postgres"),
    ("holdoff-lock", "sqlite,ledger"),
];

/// Combinations of features that users choose.
fn features() -> Done {
    for package in PURE {
        cargo(&["clippy", "--quiet", "-p", package, "--no-default-features", "--", "-D", "warnings"], &[])?;
    }
    for (package, features) in ENGINES {
        let combination = ["-p", package, "--no-default-features", "--features", features];
        cargo(&[["check", "--quiet"].as_slice(), &combination].concat(), &[])?;
    }
    Ok(())
}

/// `cargo run` without a name: cargo must know which binary is meant.
fn front_door() -> Done {
    cargo(&["run", "--quiet", "--", "policy", "explain", "standard"], &[])
}

fn rustdoc() -> Done {
    let all = ["doc", "--workspace", "--all-features", "--no-deps"];
    let own = ["--exclude", "xtask", "--exclude", "holdoff-bench"];
    cargo(&[all, own].concat(), &[("RUSTDOCFLAGS", "-D warnings")])
}
