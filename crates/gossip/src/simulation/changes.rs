//! Planned changes (leadership transfer, other voters), and clocks with drift.

use holdoff_sim::kernel::{Incident, Skew};

use super::each_seed;
use super::town::Town;
use crate::NotNow;

const SECOND_US: u64 = 1_000_000;

#[test]
fn who_is_handed_over_to_leads_and_nobody_notices_a_gap() {
    for nodes in [3, 5, 10] {
        each_seed(0..20, |seed| {
            let mut town = Town::mesh(seed, nodes, 0.01);
            let leader = town.settle(5 * SECOND_US).unwrap();
            let to = (leader + 1) % nodes;
            assert!(matches!(town.hand_over(leader, to), Err(NotNow::TooSoon { .. } | NotNow::NotLeading)));
            town.run_for(5 * SECOND_US);
            assert_eq!(town.hand_over(to, leader), Err(NotNow::NotLeading));
            assert_eq!(town.hand_over(leader, leader), Err(NotNow::NotAVoter));
            assert_eq!(town.hand_over(leader, 77), Err(NotNow::NotAVoter));
            assert_eq!(town.hand_over(leader, to), Ok(()));
            let took = town.until(10 * SECOND_US, |town| town.agreed(&town.up()) == Some(to));
            assert!(took.is_some_and(|took| took <= 1_500_000), "seed {seed}, {nodes} nodes: {took:?}");
            town.run_for(10 * SECOND_US);
            assert_eq!(
                (town.agreed(&town.up()), town.epoch(to)),
                (Some(to), 2),
                "seed {seed}, {nodes} nodes"
            );
        });
    }
}

#[test]
fn handing_over_to_one_that_is_gone_finds_another() {
    each_seed(0..20, |seed| {
        let mut town = Town::mesh(seed, 5, 0.01);
        let leader = town.settle(5 * SECOND_US).unwrap();
        town.run_for(5 * SECOND_US);
        let gone = (leader + 1) % 5;
        town.crash(gone);
        town.hand_over(leader, gone).unwrap();
        town.until(20 * SECOND_US, |town| town.epoch(leader) > 1 && town.agreed(&town.up()).is_some())
            .unwrap_or_else(|| panic!("seed {seed}"));
    });
}

#[test]
fn other_voters_prove_the_same_leader_anew_and_who_comes_later_learns_it() {
    each_seed(0..20, |seed| {
        let mut town = Town::mesh(seed, 7, 0.01);
        town.elect(3);
        let leader = town.settle(8 * SECOND_US).unwrap();
        town.run_for(2 * SECOND_US);
        let before = town.epoch(leader);
        for (raised, voters) in [(1, 4), (1, 5), (2, 6), (2, 7)] {
            town.elect(voters);
            town.run_for(3 * SECOND_US);
            assert_eq!(town.agreed(&town.up()), Some(leader), "seed {seed}, {voters} voters");
            // The votes of two of three voters are no majority of four; the votes of three of four are a majority of
            // five.
            assert_eq!(town.epoch(leader), before + raised, "seed {seed}, {voters} voters");
        }
        let other = (leader + 1) % 7;
        town.crash(other);
        town.world.befall(Incident::Restart(other));
        town.run_for(2 * SECOND_US);
        assert_eq!(town.leader(other), Some(leader), "seed {seed}");
    });
}

#[test]
fn clocks_that_run_wrong_change_no_hint() {
    each_seed(0..5, |seed| {
        let mut town = Town::mesh(seed, 10, 0.05);
        for node in 0..10_u32 {
            let drift_ppm = i32::try_from(node).unwrap() * 4000 - 20_000;
            town.world.set_skew(node, Skew { offset_us: 0, drift_ppm });
        }
        let leader = town.settle(5 * SECOND_US).unwrap();
        for _ in 0..600 {
            town.run_for(SECOND_US);
            assert_eq!(town.agreed(&town.up()), Some(leader), "seed {seed}");
        }
    });
}
