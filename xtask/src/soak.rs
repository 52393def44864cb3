//! `cargo xtask soak`: the long hauls.

use crate::run::{Done, cargo};

pub(crate) fn run() -> Done {
    let fuzz = ["test", "--release", "-p", "holdoff-policy", "--test", "fuzz", "--", "--nocapture"];
    cargo(&fuzz, &[("HOLDOFF_FUZZ_CASES", "10000000"), ("HOLDOFF_FUZZ_SEED", "1000000")])?;
    let laws = ["test", "--release", "-p", "holdoff-policy", "--test", "laws"];
    cargo(&laws, &[("PROPTEST_CASES", "200000")])
}
