//! A simulation of the council's core on a seeded network: devices, acceptors, and the faults that strike them.

mod city;
mod contention;
mod faults;
mod keys;
mod mutants;
mod node;
mod scenes;
mod truth;

use city::{City, Plan};
use faults::Struck;
pub(crate) use keys::Pen;

/// The number of seeds of a quick run and of a deep run; `cargo xtask soak` sets `HOLDOFF_COUNCIL_SEEDS` for more.
const SEEDS: (u64, u64) = (200, 2000);

/// The minimum share of the runs in which each fault must strike. With less the runs would show little.
const SHARE: f64 = 0.3;

#[test]
fn whatever_happens_nobody_diverges_and_everything_ends() {
    let seeds = holdoff_testbed::scaled("HOLDOFF_COUNCIL_SEEDS", SEEDS.0, SEEDS.1);
    let mut struck = Struck::default();
    for seed in 0..seeds {
        match City::new(Plan::faulty(seed)).live() {
            Ok(ran) => struck.add(&ran),
            Err(broken) => panic!(
                "seed {seed}: {broken}\nreplay: HOLDOFF_COUNCIL_SEED={seed} cargo test -p holdoff-council \
                 --all-features simulation::one -- --ignored --nocapture"
            ),
        }
    }
    println!("{struck}");
    struck.assert_each_in(SHARE);
}

/// Replays one seed.
#[test]
#[ignore = "replays the seed in HOLDOFF_COUNCIL_SEED"]
fn one() {
    let seed = std::env::var("HOLDOFF_COUNCIL_SEED")
        .expect("HOLDOFF_COUNCIL_SEED=number")
        .parse()
        .expect("a number");
    let ran = City::new(Plan::faulty(seed)).live();
    println!("{ran:#?}");
    assert!(ran.is_ok());
}

#[test]
fn the_same_seed_lives_the_same_life() {
    for seed in 0..20 {
        let [one, other] = [(), ()].map(|()| format!("{:?}", City::new(Plan::faulty(seed)).live()));
        assert_eq!(one, other, "seed {seed}");
    }
}
