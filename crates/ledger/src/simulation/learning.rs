//! Nodes that are too far behind for entries, and nodes that do not vote.

use holdoff_paxos::{Configuration, Slot};

use super::cases::{TestCluster, add, id, tx};
use super::node::{key, options};
use crate::machine::{Command, KeyValue, Value};
use crate::{ChangeError, Hash, Input, MAX_VOTERS, Message, MessageOf, Options, SnapshotDescription, TxId};

/// The number of indices after which no node keeps the first entries.
fn far() -> u64 {
    8 * options().kept as u64
}

fn voters(numbers: impl IntoIterator<Item = usize>) -> Configuration {
    Configuration::new(numbers.into_iter().map(id)).unwrap()
}

/// Asserts that all these nodes have the same head.
fn assert_one_head(cluster: &TestCluster, numbers: impl IntoIterator<Item = usize>) {
    let head = cluster.node(cluster.leader()).state().head();
    for number in numbers {
        assert_eq!(cluster.node(number).state().head(), head, "node {number}");
    }
}

#[test]
fn a_learner_far_behind_fetches_a_state_and_keeps_it() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    cluster.fill(far());
    let behind = cluster.node(4).state().index();
    assert!(behind.next() < cluster.node(cluster.leader()).first_kept(), "the entries are still kept");
    cluster.cut_off.clear();
    cluster.pass(2_000_000);
    assert_one_head(&cluster, 1..=4);
    assert_eq!(cluster.node(4).counts().states, 1);
    let done = cluster.node(4).state().done(TxId(1000 + u128::from(far()) - 2)).map(|(slot, _)| slot);
    assert!(done.is_some(), "the state contains the remembered transactions");

    cluster.cut_off = (1..=3).map(id).collect();
    let index = cluster.node(4).state().index();
    cluster.restart(4);
    assert_eq!(cluster.node(4).state().index(), index, "the restarted node has the state");
}

/// The leader, which has the entries, is unreachable, and other nodes have a state.
#[test]
fn a_voter_adopts_a_state_from_any_node() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let (behind, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.cut_off = vec![id(behind)];
    cluster.fill(far());
    cluster.post.clear();
    cluster.cut_off = vec![id(leader)];
    cluster.step(other, Input::Message(id(behind), Message::Fetch { after: Slot(1), or_state: true }));
    cluster.deliver();
    assert_eq!(cluster.node(behind).counts().states, 1);
    assert!(cluster.node(behind).counts().chunks > 4, "the snapshot has several chunks");
    cluster.cut_off.clear();
    cluster.pass(1_000_000);
    assert_one_head(&cluster, 1..=3);
}

#[test]
fn a_tampered_state_is_rejected() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    cluster.fill(far());
    let before = cluster.node(4).state().index();
    cluster.step(1, Input::Message(id(4), Message::Fetch { after: before, or_state: false }));
    assert!(cluster.post.is_empty(), "the requested entries are no longer kept");
    cluster.step(1, Input::Message(id(4), Message::Fetch { after: before, or_state: true }));
    let (_, _, state) = cluster.post.pop_back().unwrap();
    let Message::State(snapshot) = state else { panic!("{state:?}") };
    let changes: [fn(&mut SnapshotDescription); 9] = [
        |tampered| tampered.state.done = tampered.state.machine,
        |tampered| tampered.state.machine = tampered.state.done,
        |tampered| tampered.state.hash = Hash::default(),
        |tampered| tampered.state.bytes += 1,
        |tampered| tampered.state.proof = None,
        |tampered| tampered.last.slot = tampered.last.slot.next(),
        |tampered| tampered.start = Slot(2),
        |tampered| tampered.configuration = Configuration::new([id(1)]).unwrap(),
        |tampered| tampered.state.proof.iter_mut().for_each(|proof| proof.signatures[0].1.0[0] ^= 1),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut tampered = snapshot.clone();
        change(&mut tampered);
        cluster.step(4, Input::Message(id(1), Message::State(tampered)));
        assert!(cluster.post.is_empty(), "a chunk of the tampered state {number} was requested");
    }
    assert_eq!((cluster.node(4).counts().refused, cluster.node(4).counts().forged_certificates), (9, 1));

    // A tampered chunk shows when the content is loaded. The node drops all chunks, and takes them from another node.
    cluster.cut_off.clear();
    cluster.step(4, Input::Message(id(1), Message::State(snapshot.clone())));
    for (from, to, message) in &mut cluster.post {
        if let Message::FetchChunk { number: 2, .. } = message {
            (*from, *to, *message) = (id(1), id(4), tampered_chunk(message));
        }
    }
    cluster.deliver();
    assert_eq!((cluster.node(4).state().index(), cluster.node(4).counts().refused), (before, 10));
    cluster.step(4, Input::Message(id(2), Message::State(snapshot)));
    cluster.deliver();
    assert!(cluster.node(4).state().index() > before);
}

/// Returns a chunk without rows in answer to a request.
fn tampered_chunk(request: &MessageOf<KeyValue>) -> MessageOf<KeyValue> {
    let Message::FetchChunk { snapshot, number } = *request else { panic!("{request:?}") };
    Message::Chunk { snapshot, number, bytes: Some(vec![0; 9].into()) }
}

/// A learner that is about to receive a snapshot from node 1, of which it has stored some chunks. Returns the offer.
fn with_an_interrupted_transfer() -> (TestCluster, SnapshotDescription) {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    cluster.fill(far());
    cluster.post.clear();
    cluster.cut_off.clear();
    cluster.step(1, Input::Message(id(4), Message::Fetch { after: Slot(1), or_state: true }));
    let (_, _, state) = cluster.post.pop_back().unwrap();
    let Message::State(snapshot) = state else { panic!("{state:?}") };
    assert!(snapshot.state.chunks > 6, "{snapshot:?}");
    cluster.step(4, Input::Message(id(1), Message::State(snapshot.clone())));
    cluster.deliver_until(|cluster| cluster.node(4).counts().chunks == 3);
    cluster.post.clear();
    (cluster, snapshot)
}

#[test]
fn a_restarted_learner_resumes_with_another_node() {
    let (mut cluster, snapshot) = with_an_interrupted_transfer();
    cluster.restart(4);
    cluster.step(4, Input::Message(id(2), Message::State(snapshot.clone())));
    cluster.deliver();
    let counts = cluster.node(4).counts();
    assert_eq!(cluster.node(4).state().index(), snapshot.last.slot);
    assert_eq!(
        (counts.transfers_resumed, counts.chunks),
        (1, snapshot.state.chunks - 3),
        "the rest was received"
    );
}

#[test]
fn a_transfer_begins_again_with_a_later_snapshot_if_the_source_has_replaced_it() {
    let (mut cluster, snapshot) = with_an_interrupted_transfer();
    let (id_of_old, number) = (crate::state::snapshot_id(&snapshot).unwrap(), 3);
    cluster.cut_off = vec![id(4)];
    cluster.fill(2 * far());
    cluster.cut_off.clear();
    cluster.post.clear();
    cluster.step(4, Input::Message(id(1), Message::Chunk { snapshot: id_of_old, number, bytes: None }));
    cluster.step(1, Input::Message(id(4), Message::Fetch { after: Slot(1), or_state: true }));
    cluster.deliver();
    let state = cluster.node(4).state();
    assert!(state.index() > snapshot.last.slot && cluster.node(4).counts().transfers_resumed == 0);
    assert_eq!(cluster.node(4).counts().states, 1);
}

#[test]
fn lost_chunks_are_requested_again_and_a_silent_source_is_given_up() {
    let (mut cluster, snapshot) = with_an_interrupted_transfer();
    let resend_us = options().resend_us;
    cluster.cut_off = vec![id(4)];
    cluster.pass(5 * resend_us);
    assert_eq!(cluster.node(4).counts().chunks, 3);
    cluster.cut_off.clear();
    cluster.step(4, Input::Message(id(1), Message::State(snapshot.clone())));
    cluster.post.clear();
    cluster.pass(2 * resend_us);
    assert!(cluster.node(4).state().index() >= snapshot.last.slot, "the requests are repeated");
    assert_eq!(cluster.node(4).counts().transfers_resumed, 1);
}

/// All voters that the learner knew have been replaced: it verifies one configuration certificate after another.
#[test]
fn a_learner_verifies_voters_it_never_knew_by_configuration_certificates() {
    let mut cluster = TestCluster::new(3, 7);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(7)];
    let mut now: Vec<_> = (1..=3).collect();
    for (added, removed) in [(4, 1), (5, 2), (6, 3)] {
        for to in [[&now[..], &[added]].concat(), [&now[1..], &[added]].concat()] {
            let index = cluster.node(cluster.leader()).state().index().0;
            cluster.fill(index + 2 * options().kept as u64);
            cluster.change(&voters(to));
        }
        assert_eq!(now.remove(0), removed);
        now.push(added);
        cluster.cut_off.push(id(removed));
    }
    cluster.fill(cluster.node(cluster.leader()).state().index().0 + far());
    assert_eq!(*cluster.node(cluster.leader()).state().voters(), voters(4..=6));
    let leader = cluster.leader();
    cluster.step(leader, Input::Message(id(7), Message::Fetch { after: Slot(2), or_state: true }));
    let (_, _, state) = cluster.post.pop_back().unwrap();
    let Message::State(mut snapshot) = state else { panic!("{state:?}") };
    assert_eq!(snapshot.state.configuration_certificates.len(), 6);

    // With missing configuration certificates the learner rejects the state; with all of them it accepts it.
    snapshot.state.configuration_certificates.drain(1..5);
    let before = cluster.node(7).state().index();
    cluster.cut_off.retain(|node| *node != id(7));
    cluster.step(7, Input::Message(id(leader), Message::State(snapshot)));
    cluster.deliver();
    assert_eq!(cluster.node(7).state().index(), before);
    // The learner asks only the voters that it knows, so the test delivers the answer of a new voter.
    cluster.step(leader, Input::Message(id(7), Message::Fetch { after: Slot(2), or_state: true }));
    cluster.deliver();
    assert_eq!(*cluster.node(7).state().voters(), voters(4..=6));
    cluster.pass(2_000_000);
    assert_one_head(&cluster, 4..=7);
}

#[test]
fn a_configuration_change_reports_its_outcome() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    let refused = [
        (follower, voters(1..=4), ChangeError::NotLeading(Some(id(leader)))),
        (leader, voters(1..=3), ChangeError::Same),
        (leader, voters(1..=5), ChangeError::MoreThanOneVoter),
        (leader, voters(1..=MAX_VOTERS + 1), ChangeError::TooMany(8)),
    ];
    for (at, to, why) in refused {
        cluster.step(at, Input::ChangeConfiguration(to));
        assert_eq!(cluster.changed.pop(), Some(Err(why)));
    }
    cluster.step(leader, Input::ChangeConfiguration(voters(1..=4)));
    cluster.step(leader, Input::ChangeConfiguration(voters([1, 2])));
    assert_eq!(cluster.changed.pop(), Some(Err(ChangeError::Changing)));
    cluster.deliver();
    cluster.pass(500_000);
    let at = cluster.node(cluster.leader()).state().head().start;
    assert_eq!(cluster.changed.pop(), Some(Ok((voters(1..=4), Slot(at.0 - 1)))));

    let leader = cluster.leader();
    cluster.cut_off = vec![id(leader)];
    cluster.step(leader, Input::ChangeConfiguration(voters(1..=3)));
    cluster.pass(2_000_000);
    assert_eq!(cluster.changed.pop(), Some(Err(ChangeError::Unknown)), "the change reached no other node");
}

#[test]
fn a_change_that_the_next_leader_does_not_know_is_overtaken() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    cluster.cut_off = vec![id(leader)];
    cluster.step(leader, Input::ChangeConfiguration(voters(1..=4)));
    cluster.post.clear();
    cluster.pass(700_000);
    assert_eq!(cluster.changed, []);
    cluster.cut_off.clear();
    cluster.pass(150_000);
    assert_eq!(cluster.changed, [Err(ChangeError::Overtaken)]);
}

/// A message carries 4 MiB of entries; the later ones are sent as hashes.
#[test]
fn long_entries_are_fetched_in_limited_batches() {
    let mut cluster =
        TestCluster::with_options(3, 4, Options { batch: 16, kept: 20, kept_bytes: 16 << 20, ..options() });
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    let leader = cluster.leader();
    for tx_id in 0..14_u8 {
        let text = char::from(b'a' + tx_id).to_string().repeat(crate::machine::limits::TEXT_BYTES);
        let put = |number| Command::Put(key(number), Value::text(text.as_str()).unwrap());
        let (tx_id, goal) = (u128::from(tx_id), (0..7).map(put).collect());
        cluster.submit_goal(leader, tx(tx_id), goal);
    }
    cluster.deliver();
    cluster.pass(100_000);
    let before = cluster.node(4).state().index();
    cluster.step(leader, Input::Message(id(4), Message::Fetch { after: before, or_state: false }));
    let (_, _, history) = cluster.post.pop_back().unwrap();
    let Message::History { entries, rest, .. } = &history else { panic!() };
    let bytes: usize = entries.iter().map(|entry| postcard::to_stdvec(entry).unwrap().len()).sum();
    assert!(
        bytes <= 4 << 20 && !entries.is_empty() && !rest.is_empty(),
        "{bytes} {} {}",
        entries.len(),
        rest.len()
    );
    let came = entries.len() as u64;
    cluster.step(4, Input::Message(id(leader), history));
    assert_eq!(cluster.node(4).state().index(), Slot(before.0 + came));
    cluster.cut_off.clear();
    cluster.pass(1_000_000);
    assert_one_head(&cluster, 1..=4);
}

#[test]
fn a_learner_submits_and_receives_the_outcome() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.submit_goal(4, tx(7), add());
    cluster.pass(500_000);
    assert!(
        matches!(cluster.ended[..], [(TxId(7), crate::Outcome::Committed { .. })]),
        "{:?}",
        cluster.ended
    );
}
