//! A simulation of many contenders for one key under injected faults: the pure cores on a seeded event queue.
//!
//! Contenders run [`Wait`](crate::wait::Wait) and [`Tenure`](crate::tenure::Tenure) on clocks of their own; the store
//! is a [`Row`](crate::row::Row). Requests and responses are lost or delayed. Processes crash, or are frozen for longer
//! than their lease, between the check of their guard and a write. A resource stores the highest token.
//!
//! A failing seed is printed with the command that replays it. `HOLDOFF_LOCK_SEEDS` sets the number of runs.

mod contender;
mod mutants;
mod network;
mod plan;
mod verdict;
mod world;

use plan::Plan;
use verdict::{Broken, Strikes};
use world::{Ran, World};

/// A defect that is injected into the store, or into the contenders' use of the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    None,
    /// A release frees the lock of any holder.
    ReleaseWithoutOwner,
    /// The store is read, then written without a comparison.
    TakeoverWithoutCompare,
    /// Tokens start again when a lock is released.
    TokenReset,
    /// Leases are measured by the wall clock of the requester.
    RemoteWallClock,
    /// Validity counts from the arrival of the response.
    ValidFromAnswer,
    /// The validity of a grant that was read back counts from the last request, although an earlier one may be the
    /// granted one.
    ReadBackFromLatest,
    /// All contenders draw the same random number.
    PointJitter,
}

fn run(seed: u64, mutant: Mutant) -> Result<Ran, Broken> {
    World::new(Plan::of(seed), mutant).run()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number("HOLDOFF_LOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..holdoff_testbed::scaled("HOLDOFF_LOCK_SEEDS", 400, 2000),
    }
}

#[test]
fn nothing_is_broken_under_any_seed() {
    let seeds = seeds();
    let (mut strikes, mut total) = (Strikes::default(), Ran::default());
    for seed in seeds.clone() {
        match run(seed, Mutant::None) {
            Ok(ran) => {
                strikes.add(&ran.faults);
                total.add(&ran);
            }
            Err(broken) => panic!(
                "seed {seed}: {broken}\nreplay: HOLDOFF_LOCK_SEED={seed} cargo test -p holdoff-lock --lib nothing_is_broken"
            ),
        }
    }
    println!("{} seeds: {total:?}\n{strikes:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= 100 {
        strikes.assert_each_in_a_third_of(seeds.end - seeds.start);
        assert!(total.acquired > total.gave_up, "{total:?}");
        assert!(total.found_again > 0, "no lost grant was ever found again: {total:?}");
        assert!(total.refused_writes > 0, "no late write was ever refused: {total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let [one, other] = [(), ()].map(|()| format!("{:?}", run(seed, Mutant::None)));
        assert_eq!(one, other, "seed {seed}");
    }
}

#[test]
fn without_faults_everybody_is_served_in_turn() {
    for seed in 0..100 {
        let plan = Plan::of(seed).without_faults();
        let wanted = u32::try_from(plan.contenders).unwrap() * plan.acquisitions;
        let ran = World::new(plan, Mutant::None).run().unwrap();
        assert_eq!(
            (ran.acquired, ran.gave_up, ran.lost, ran.refused_writes),
            (wanted, 0, 0, 0),
            "seed {seed}"
        );
        assert_eq!(ran.writes, wanted * 3, "seed {seed}");
    }
}
