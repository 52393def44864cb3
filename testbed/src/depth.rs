//! How much a test run covers, how long a test waits, and how it says that it did not run.

use std::time::Duration;

/// Set to `1` by `cargo xtask test --deep`.
pub const DEEP_VARIABLE: &str = "TESTBED_DEEP";

/// Begins the line by which a test tells the runner that it did not run.
pub const SKIPPED: &str = "skipped: ";

/// How long a test awaits a condition that must come true.
///
/// The limit only ends a test that would hang, so it is longer than anything takes on a busy machine.
pub const CONDITION_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns whether this is a run of `cargo xtask test --deep`.
pub fn is_deep() -> bool {
    std::env::var(DEEP_VARIABLE).is_ok_and(|value| value == "1")
}

/// Returns how many seeds or cases a test runs: the value of `variable` if it is set, else `quick` or, in a deep run,
/// `deep`.
pub fn scaled(variable: &str, quick: u64, deep: u64) -> u64 {
    match std::env::var(variable) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("${variable} is {value:?}, not a number")),
        Err(_) if is_deep() => deep,
        Err(_) => quick,
    }
}

/// Tells the runner that the calling test did not run. The summary of `cargo xtask test` repeats the reason.
#[allow(clippy::print_stdout, reason = "the runner reads the test's output")]
pub fn skip(reason: &str) {
    // libtest leaves the cursor behind the test's name.
    println!("\n{SKIPPED}{reason}");
}
