//! The phases that only `cargo xtask test --deep` has, beside the tests in modules named `deep` and all seeds.

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

/// Combinations of features that users choose: the core without the standard library, the executors without tokio, each
/// engine alone.
const COMBINATIONS: [(&str, &str); 8] = [
    ("holdoff-policy", ""),
    ("holdoff-retry", ""),
    ("holdoff", ""),
    ("holdoff-work", "sqlite"),
    ("holdoff-work", "postgres,http"),
    ("holdoff-lock", ""),
    ("holdoff-lock", "postgres"),
    ("holdoff-lock", "sqlite,ledger"),
];

fn features() -> Done {
    for (package, features) in COMBINATIONS {
        let chosen = ["clippy", "-p", package, "--no-default-features", "--features", features];
        cargo(&[chosen.as_slice(), &["--", "-D", "warnings"]].concat(), &[])?;
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
