//! `cargo xtask soak`: the long hauls.

use crate::run::{Done, bench, cargo};

/// `cargo xtask soak`
pub(crate) fn run() -> Done {
    pure_and_chaos()?;
    council()?;
    server()
}

/// `cargo xtask soak council`: a hundred thousand seeds of trouble.
pub(crate) fn council() -> Done {
    let lives = ["test", "-p", "holdoff-council", "--all-features", "--lib", "whatever", "--", "--nocapture"];
    cargo(&lives, &[("COUNCIL_SEEDS", "100000")])
}

/// `cargo xtask soak server`
pub(crate) fn server() -> Done {
    bench(&["soak", "server"])
}

fn pure_and_chaos() -> Done {
    for pure in ["holdoff-policy", "holdoff-ledger"] {
        let fuzz = ["test", "--release", "-p", pure, "--test", "fuzz", "--", "--nocapture"];
        cargo(&fuzz, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
        cargo(&["test", "--release", "-p", pure, "--test", "laws"], &[("PROPTEST_CASES", "200000")])?;
    }
    let frames = ["test", "--release", "-p", "holdoff-net", "--lib", "fuzz", "--", "--nocapture"];
    cargo(&frames, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
    let storms =
        ["test", "-p", "holdoff-net", "--features", "turmoil", "--test", "simulation", "--", "--nocapture"];
    cargo(&storms, &[("HOLDOFF_SIM_RUNS", "2000"), ("HOLDOFF_SIM_SEED", "1000000")])?;
    let models =
        ["test", "--release", "-p", "holdoff-paxos", "--lib", "--", "--include-ignored", "--nocapture"];
    cargo(&models, &[("HOLDOFF_PAXOS_SEEDS", "100000")])?;
    let chaos = ["test", "-p", "holdoff-work", "--test", "chaos", "--", "--nocapture"];
    cargo(&chaos, &[("HOLDOFF_CHAOS_STEPS", "300000"), ("HOLDOFF_CHAOS_SECONDS", "600")])
}
