//! Fault injection: known defects of the source document's algorithm, one at a time. The scenarios must find each of them.

use holdoff_testbed::fault::inject;

use super::cluster::Cluster;
use super::each_seed;
use super::node::Setup;
use super::node::key;

const SECOND_US: u64 = 1_000_000;
/// The number of voters, all of which may sign a heartbeat if [`GossipFault::RelaysRaise`] is injected.
pub(super) const VOTERS: u32 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GossipFault {
    /// A node that forwards a heartbeat raises and signs it again, and receivers accept the signature of any voter.
    RelaysRaise,
    /// A node adopts a heartbeat without checking its signature.
    UncheckedHeartbeats,
}

/// Returns whether no node holds a higher heartbeat than the leader has raised, before and after the leader's crash.
fn heartbeats_stop_with_the_leader(seed: u64, liar: Option<u32>) -> bool {
    let mut cluster = Cluster::new(seed, VOTERS, Setup { voters: VOTERS, liar }, 0.01);
    cluster.until(60 * SECOND_US, |cluster| cluster.log.is_some());
    // A liar begins late.
    cluster.run_for(10 * SECOND_US);
    let leader = cluster.log.unwrap();
    let raised = cluster.world.node(leader).unwrap().node.counts().raised;
    cluster.crash(leader);
    for _ in 0..20 {
        cluster.step();
        let heartbeats = cluster.up().into_iter().filter_map(|node| cluster.world.node(node)?.node.hint());
        let mut of_it = heartbeats.filter(|hint| hint.claim.leader == key(leader));
        if of_it.any(|hint| hint.heartbeat > raised) {
            return false;
        }
    }
    true
}

#[test]
fn a_relay_does_not_raise_a_heartbeat() {
    each_seed(10, |seed| {
        assert!(heartbeats_stop_with_the_leader(seed, None));
        let found = !inject(GossipFault::RelaysRaise, || heartbeats_stop_with_the_leader(seed, None));
        assert!(found, "the injected fault was not found");
    });
}

#[test]
fn a_heartbeat_without_the_signature_of_its_leader_is_rejected() {
    let mut found = 0;
    each_seed(10, |seed| {
        // Some liars send no such heartbeat in time.
        let liar = u32::try_from(seed % 5).ok();
        assert!(heartbeats_stop_with_the_leader(seed, liar));
        found += u32::from(!inject(GossipFault::UncheckedHeartbeats, || {
            heartbeats_stop_with_the_leader(seed, liar)
        }));
    });
    println!("UncheckedHeartbeats: found by {found} of 10 seeds");
    assert!(
        found > 0 || holdoff_testbed::Seeds::new(10, 10).count() < 10,
        "the injected fault was not found"
    );
}
