//! `cargo xtask soak`: the long hauls.

use crate::run::{Done, cargo};

pub(crate) fn run() -> Done {
    let fuzz = ["test", "--release", "-p", "holdoff-policy", "--test", "fuzz", "--", "--nocapture"];
    cargo(&fuzz, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
    let laws = ["test", "--release", "-p", "holdoff-policy", "--test", "laws"];
    cargo(&laws, &[("PROPTEST_CASES", "200000")])?;
    let chaos = ["test", "-p", "holdoff-work", "--test", "chaos", "--", "--nocapture"];
    cargo(&chaos, &[("HOLDOFF_CHAOS_STEPS", "300000"), ("HOLDOFF_CHAOS_SECONDS", "600")])
}
