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

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a scenario under each seed, or only under `HOLDOFF_GOSSIP_SEED`.
fn each_seed(seeds: Range<u64>, mut scenario: impl FnMut(u64)) {
    let asked = std::env::var("HOLDOFF_GOSSIP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = asked.map_or(seeds, |seed| seed..seed + 1);
    let runs = seeds.end - seeds.start;
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("simulation");
    let mut total: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for seed in seeds {
        cluster::forget_faults();
        let survived = catch_unwind(AssertUnwindSafe(|| scenario(seed))).is_ok();
        assert!(survived, "replay: HOLDOFF_GOSSIP_SEED={seed} cargo test -p holdoff-gossip --lib {name}");
        for (fault, times) in cluster::faults() {
            let (struck, all) = total.entry(fault).or_default();
            *struck += u64::from(times > 0);
            *all += times;
        }
    }
    for (fault, (struck, times)) in total.iter().filter(|(_, (struck, _))| *struck > 0) {
        println!("{name}: {fault} in {:>3} % of {runs} runs, {times} times", struck * 100 / runs);
    }
}
