//! `cargo xtask soak`: the long test runs.
//!
//! The defaults of their lengths are here; environment variables override them, for a shorter or a longer
//! run.

use crate::run::{Done, bench, cargo};

/// Runs `cargo xtask soak`.
pub(crate) fn run() -> Done {
    pure_and_chaos()?;
    council()?;
    ledger()?;
    server()
}

/// Runs `cargo xtask soak council`: a hundred thousand seeds of fault injection, ten million requests to a
/// council's acceptor, and as many through its writer.
pub(crate) fn council() -> Done {
    let lives = ["test", "-p", "holdoff-council", "--all-features", "--lib", "whatever", "--", "--nocapture"];
    haul(&lives, &[("HOLDOFF_COUNCIL_SEEDS", "100000")])?;
    let questions =
        ["test", "-p", "holdoff-council", "--all-features", "--test", "it", "fuzz", "--", "--nocapture"];
    haul(&questions, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])
}

/// Runs `cargo xtask soak ledger`: a hundred thousand seeds of fault injection for its core, and the whole
/// table of elections.
pub(crate) fn ledger() -> Done {
    let seeds =
        ["test", "-p", "holdoff-ledger", "--all-features", "--lib", "one_history", "--", "--nocapture"];
    haul(&seeds, &[("HOLDOFF_LEDGER_SEEDS", "100000")])?;
    cargo(&["run", "--release", "--quiet", "--", "sim", "election", "--all"], &[])
}

fn haul(arguments: &[&str], environment: &[(&str, &str)]) -> Done {
    let is_unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
    let unset: Vec<_> = environment.iter().filter(is_unset).copied().collect();
    cargo(arguments, &unset)
}

/// Runs `cargo xtask soak server`.
pub(crate) fn server() -> Done {
    bench(&["soak", "server"])
}

fn pure_and_chaos() -> Done {
    for pure in ["holdoff-policy", "holdoff-ledger"] {
        let fuzz = ["test", "--release", "-p", pure, "--test", "it", "fuzz::", "--", "--nocapture"];
        haul(&fuzz, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
        haul(&["test", "--release", "-p", pure, "--test", "it", "laws::"], &[("PROPTEST_CASES", "200000")])?;
    }
    let frames = ["test", "--release", "-p", "holdoff-net", "--lib", "fuzz", "--", "--nocapture"];
    haul(&frames, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
    let storms = ["test", "-p", "holdoff-net", "--features", "turmoil", "--test", "it", "--", "--nocapture"];
    haul(&storms, &[("HOLDOFF_SIM_RUNS", "2000"), ("HOLDOFF_SIM_SEED", "1000000")])?;
    let models =
        ["test", "--release", "-p", "holdoff-paxos", "--lib", "--", "--include-ignored", "--nocapture"];
    haul(&models, &[("HOLDOFF_PAXOS_SEEDS", "100000")])?;
    let chaos = ["test", "-p", "holdoff-work", "--test", "it", "chaos::", "--", "--nocapture"];
    haul(&chaos, &[("HOLDOFF_CHAOS_STEPS", "300000"), ("HOLDOFF_CHAOS_SECONDS", "600")])
}
