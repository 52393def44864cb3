//! The depth of a test run, the timeout of conditions, and the report of skipped tests.

use std::time::Duration;

/// Set to `1` by `cargo xtask test --deep`.
pub const DEEP_VARIABLE: &str = "TESTBED_DEEP";

/// The prefix of the line by which a test reports to the runner that it was skipped.
pub const SKIPPED: &str = "skipped: ";

/// The time for which a test awaits a condition that must become true.
///
/// The limit only ends a test that would otherwise hang, so it exceeds every wait on a busy machine.
pub const CONDITION_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns whether this is a run of `cargo xtask test --deep`.
pub fn is_deep() -> bool {
    std::env::var(DEEP_VARIABLE).is_ok_and(|value| value == "1")
}

/// Returns the number of seeds or cases of a test: the value of `variable` if it is set, else `quick` or, in
/// a deep run, `deep`.
pub fn scaled(variable: &str, quick: u64, deep: u64) -> u64 {
    match std::env::var(variable) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("${variable} is {value:?}, not a number")),
        Err(_) if is_deep() => deep,
        Err(_) => quick,
    }
}

/// Reports to the runner that the calling test was skipped. The summary of `cargo xtask test` repeats the
/// reason.
#[allow(clippy::print_stdout, reason = "the runner reads the test's output")]
pub fn skip(reason: &str) {
    // libtest leaves the cursor behind the test's name.
    println!("\n{SKIPPED}{reason}");
}
