//! The injected defects, one at a time: the scenes must find each of them.

use super::each_seed;
use super::keys::key;
use super::machine::Setup;
use super::town::Town;
use crate::flaw::Flaw;

const SECOND_US: u64 = 1_000_000;

/// Returns whether no node holds a higher heartbeat than the leader has raised, before and after the leader's crash.
fn a_dead_heart_stands_still(seed: u64, liar: Option<u32>) -> bool {
    let mut town = Town::new(seed, 5, Setup { voters: 5, is_mesh: true, liar }, 0.01);
    town.until(60 * SECOND_US, |town| town.log.is_some());
    // A liar begins late.
    town.run_for(10 * SECOND_US);
    let leader = town.log.unwrap();
    let raised = town.world.node(leader).unwrap().node.counts().raised;
    town.crash(leader);
    for _ in 0..20 {
        town.step();
        let heartbeats = town.up().into_iter().filter_map(|node| town.world.node(node)?.node.hint());
        let mut of_it = heartbeats.filter(|hint| hint.claim.leader == key(leader));
        if of_it.any(|hint| hint.heartbeat > raised) {
            return false;
        }
    }
    true
}

#[test]
fn who_passes_a_heartbeat_on_makes_no_fresh_one_of_it() {
    each_seed(0..10, |seed| {
        assert!(a_dead_heart_stands_still(seed, None));
        let found = !Flaw::RelaysRaise.plant(|| a_dead_heart_stands_still(seed, None));
        assert!(found, "the scene finds nothing");
    });
}

#[test]
fn a_heartbeat_that_its_leader_has_not_signed_is_none() {
    let mut found = 0;
    each_seed(0..10, |seed| {
        // Some liars send no such heartbeat in time.
        let liar = u32::try_from(seed % 5).ok();
        assert!(a_dead_heart_stands_still(seed, liar));
        found += u32::from(!Flaw::UncheckedBeats.plant(|| a_dead_heart_stands_still(seed, liar)));
    });
    println!("UncheckedBeats: found by {found} of 10 seeds");
    assert!(found > 0 || std::env::var_os("HOLDOFF_GOSSIP_SEED").is_some(), "the scene finds nothing");
}
