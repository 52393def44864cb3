//! Simulation of gossip nodes on unreliable links, with a model of the log that follows the hint where it has a quorum.
//! The faults are crashes, partitions, churn and lying voters.
//!
//! All times are virtual. A failing scenario reports its seed and the command that replays it. The simulation counts and
//! prints the faults.

mod cluster;
mod faults;
mod liar;
pub(crate) mod node;
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdoff_sim::kit::Coverage;
use holdoff_testbed::Seeds;

/// Runs a scenario under this many seeds.
fn each_seed(count: u64, mut scenario: impl FnMut(u64)) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("simulation");
    let mut coverage = Coverage::default();
    for seed in Seeds::new(count, count) {
        cluster::forget_faults();
        let survived = catch_unwind(AssertUnwindSafe(|| scenario(seed))).is_ok();
        assert!(survived, "{}", Seeds::replay(seed, &format!("cargo test -p holdoff-gossip --lib {name}")));
        coverage.add(cluster::faults());
    }
    println!("{name}: {coverage}");
}
