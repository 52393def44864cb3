//! `cargo xtask test`: everything CI runs.

use crate::run::{Done, cargo, now};
use crate::{axe, n_minus_one, needs, schemathesis, tidy};

pub(crate) fn run() -> Done {
    let start = now();
    cargo(&["fmt", "--all", "--check"], &[])?;
    tidy::run()?;
    needs::meet()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"], &[])?;
    // The pure core must stay usable without the standard library, and the executors without tokio.
    cargo(&["clippy", "-p", "holdoff-policy", "--no-default-features", "--", "-D", "warnings"], &[])?;
    cargo(&["clippy", "-p", "holdoff-retry", "--no-default-features", "--", "-D", "warnings"], &[])?;
    let axe = axe::install()?;
    let axe = [(axe::VARIABLE, axe.to_str().ok_or("the path of this folder is no text")?)];
    cargo(&["test", "--workspace", "--all-features", "--all-targets"], &axe)?;
    cargo(&["test", "--workspace", "--all-features", "--doc"], &[])?;
    schemathesis::run()?;
    n_minus_one::run()?;
    // The front door: cargo must know which binary is meant.
    cargo(&["run", "--quiet", "--", "policy", "explain", "standard"], &[])?;
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    cargo(
        &[
            "doc",
            "--workspace",
            "--all-features",
            "--no-deps",
            "--exclude",
            "xtask",
            "--exclude",
            "holdoff-bench",
        ],
        &strict,
    )?;
    eprintln!("\nAll good, in {:.0} s.", start.elapsed().as_secs_f64());
    Ok(())
}
