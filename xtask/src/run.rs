//! Runs other programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The result of a task; the error is the reason of its failure.
pub(crate) type TaskResult = Result<(), String>;

/// Returns the project's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Runs cargo in the project's root and prints the elapsed time.
pub(crate) fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> TaskResult {
    let shown = format!("cargo {}", arguments.join(" "));
    eprintln!("\n▶ {shown}");
    let start = now();
    let status = cargo_command(arguments, environment)
        .status()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    eprintln!("  {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{shown} failed")) }
}

/// Returns a cargo command in the project's root.
pub(crate) fn cargo_command(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).envs(environment.iter().copied()).current_dir(root());
    command
}

/// Runs `cargo xtask bench`.
pub(crate) fn bench(arguments: &[&str]) -> TaskResult {
    let names = || arguments.iter().filter(|argument| !argument.starts_with("--"));
    if names().count() == 0 || names().any(|name| ["server", "latency", "queries"].contains(name)) {
        // These benchmarks run the release binary of the daemon.
        cargo(&["build", "--quiet", "--release", "--package", "holdoff-cli"], &[])?;
    }
    let fixed = ["run", "--quiet", "--profile", "bench", "--package", "holdoff-bench", "--"];
    cargo(&[&fixed, arguments].concat(), &[])
}

#[expect(clippy::disallowed_methods, reason = "a development task may read the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
