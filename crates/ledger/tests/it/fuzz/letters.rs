//! Mutated messages, which no correct node sends: no panic, no decision, and no change of the state.

use std::cell::{Cell, RefCell};
use std::mem::discriminant;

use fastrand::Rng;
use holdoff_ledger::{Hash, Input, Letter};
use holdoff_paxos::{NodeId, Slot, log};
use holdoff_testbed::fuzz::{cases, hunt};

use super::REPLAY;
use super::cluster::{Cluster, Node, Post, node};

/// A node that neither votes nor leads, and that no message names.
const STRANGER: NodeId = NodeId(u128::MAX / 3);

/// Returns some messages of each kind, as bytes.
fn corpus(said: &[Post], is_wanted: impl Fn(&Post) -> bool) -> Vec<Vec<u8>> {
    let mut kinds: Vec<(_, Vec<&Post>)> = Vec::new();
    for letter in said.iter().filter(|letter| is_wanted(letter)) {
        let kind = match letter {
            Letter::Log(message) => (discriminant(letter), Some(discriminant(message))),
            _ => (discriminant(letter), None),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, letters)) => letters.push(letter),
            None => kinds.push((kind, vec![letter])),
        }
    }
    let some =
        kinds.iter().flat_map(|(_, letters)| letters.iter().take(4).chain(letters.iter().rev().take(4)));
    some.map(|letter| holdoff_net::encode(letter).unwrap().to_vec()).collect()
}

fn garble(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
    }
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    // From time to time the message is not mutated.
    let times = if rng.u8(0..64) == 0 { 0 } else { rng.usize(1..4) };
    for _ in 0..times {
        let at = rng.usize(..=bytes.len());
        match rng.u8(0..8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.u8(0..8)),
        }
    }
    bytes
}

/// Returns nodes that have exchanged messages of all kinds. The learner was disconnected for a long time.
fn talk() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pass(60);
    cluster.work(1, 10);
    let leader = cluster.leader();
    let voters = holdoff_paxos::Configuration::new([1, 2, 3, 4].map(NodeId)).unwrap();
    let without = holdoff_paxos::Configuration::new([1, 2, 3].map(NodeId)).unwrap();
    cluster.step(leader, Input::Change(voters));
    cluster.pass(60);
    cluster.is_learner_cut = true;
    cluster.work(50, 50);
    cluster.is_learner_cut = false;
    cluster.pass(60);
    cluster.is_learner_cut = true;
    let leader = cluster.leader();
    cluster.step(leader, Input::Change(without));
    cluster.pass(60);
    cluster.work(100, 100);
    cluster
}

/// Returns the parts of a node that must not change.
fn standing(node: &Node) -> (Hash, [Slot; 3], [log::Term; 2]) {
    let (state, store) = (node.state(), node.store());
    let slots = [state.index(), store.decided(), store.last()];
    (state.hash(), slots, [store.promised(), store.accepted()])
}

fn assert_most_are_read(read: u64, cases: u64) {
    println!("{read} of {cases} could be read");
    assert!(cases < 1000 || read * 4 > cases, "most of them must come further than to the door");
}

/// Votes and other messages of voters and leaders: mutated, or from a node that is neither.
#[test]
fn the_vote() {
    let mut cluster = talk();
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    cluster.is_learner_cut = false;
    cluster.pass(100);
    // The leader waits for the signature shares that have not arrived.
    cluster.is_unsealed = true;
    cluster.work(300, 3);
    let log = corpus(&cluster.said, |letter| matches!(letter, Letter::Log(_)));
    let rest = corpus(&cluster.said, |letter| {
        matches!(letter, Letter::Seal(_) | Letter::Certified(_) | Letter::Probe(..) | Letter::Probed(..))
    });
    assert!(log.len() > 32 && rest.len() == 32, "all kinds were said: {} {}", log.len(), rest.len());
    let before = [leader, follower].map(|number| standing(&cluster.nodes[number - 1].0));
    let now_us = cluster.now_us;
    let (read, cluster) = (Cell::new(0_u64), RefCell::new(cluster));
    let cases = cases(1_000_000);
    hunt(REPLAY, cases, |rng| {
        let is_log = rng.bool();
        let Ok(letter) = holdoff_net::decode::<Post>(&garble(rng, if is_log { &log } else { &rest })) else {
            return;
        };
        // A mutated message may become a `Submit`, which this test does not cover.
        if matches!(letter, Letter::Submit { .. }) {
            return;
        }
        read.set(read.get() + 1);
        let to_leader = !matches!(letter, Letter::Log(_)) && rng.bool();
        let (place, number) = if to_leader { (0, leader) } else { (1, follower) };
        let voter = NodeId(rng.u128(1..=3));
        let from = if matches!(letter, Letter::Log(_)) || rng.bool() { STRANGER } else { voter };
        let mut cluster = cluster.borrow_mut();
        let node = &mut cluster.nodes[number - 1].0;
        drop(node.step(now_us, rng.u32(..), Input::Message(from, letter)));
        assert_eq!(standing(node), before[place]);
    });
    assert_most_are_read(read.get(), cases);
    let counts = cluster.borrow().nodes.iter().map(|(node, _)| *node.counts()).collect::<Vec<_>>();
    let forged = |of: fn(&holdoff_ledger::Counts) -> u64| counts.iter().map(of).sum::<u64>();
    println!("{} seals, {} certificates", forged(|it| it.forged_seals), forged(|it| it.forged_certificates));
    assert!(cases < 1000 || forged(|it| it.forged_seals.min(it.forged_certificates)) > 0);
}

/// Histories and states for a node that misses them: it reaches the decided state, or does not change.
#[test]
fn the_history() {
    let mut cluster = talk();
    let store = cluster.nodes[3].1.clone();
    let behind = cluster.nodes[3].0.state().index();
    let said = cluster.said.len();
    cluster.is_learner_cut = false;
    // A node that was disconnected for a long time asks rarely.
    cluster.pass(600);
    assert_eq!(cluster.nodes[3].0.state().index(), cluster.nodes[0].0.state().index());
    let (heads, now_us) = (cluster.heads.clone(), cluster.now_us);
    let letters = corpus(&cluster.said[said..], |letter| {
        matches!(
            letter,
            Letter::Fetch { .. } | Letter::History { .. } | Letter::State(_) | Letter::Submit { .. }
        )
    });
    let learner = RefCell::new(node(4, store.clone(), now_us));
    let (read, came, refused) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0_u64));
    let cases = cases(1_000_000);
    hunt(REPLAY, cases, |rng| {
        let Ok(letter) = holdoff_net::decode::<Post>(&garble(rng, &letters)) else { return };
        // A node trusts the log messages of its leader, which this test does not cover.
        if matches!(letter, Letter::Log(_)) {
            return;
        }
        read.set(read.get() + 1);
        let mut learner = learner.borrow_mut();
        let voter = NodeId(rng.u128(1..=3));
        drop(learner.step(now_us, rng.u32(..), Input::Message(voter, letter)));
        assert!(learner.torn().is_none());
        if learner.state().index() > behind {
            let head = learner.state().head();
            assert_eq!(heads.get(&head.index), Some(&head), "only what is decided is believed");
            came.set(came.get() + 1);
            refused.set(refused.get() + learner.counts().refused);
            *learner = node(4, store.clone(), now_us);
        }
    });
    println!("{} times it came to what is decided, {} were refused", came.get(), refused.get());
    assert_most_are_read(read.get(), cases);
    assert!(cases < 1000 || (came.get() > 0 && refused.get() > 0));
}
