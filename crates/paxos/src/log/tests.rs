//! Unit tests of the behaviour that users of a node observe.

mod cluster;
mod fuzz;
mod reconfiguration;
mod transfer;

use super::*;
use crate::{Configuration, NodeId, Slot};
use cluster::{TestCluster, nodes, term_of_one};

const ELECTION_US: u64 = 1_000_000;
const HEARTBEAT_US: u64 = 150_000;

#[test]
fn a_majority_decides_a_value_and_every_node_learns_it() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    assert_eq!(cluster.propose(1, 7), Ok(Slot(2)), "after the no-op entry");
    cluster.settle();
    assert_eq!(cluster.values(1), [7]);
    cluster.pass(ELECTION_US / 2);
    cluster.settle();
    for node in 1..=3 {
        assert_eq!(cluster.values(node), [7], "node {node}");
    }
}

#[test]
fn a_single_voter_decides_at_once() {
    let mut cluster = TestCluster::new(1);
    cluster.elect(1);
    assert_eq!(cluster.propose(1, 7), Ok(Slot(2)));
    assert_eq!(cluster.values(1), [7]);
}

#[test]
fn a_follower_rejects_a_proposal_and_names_the_leader() {
    let mut cluster = TestCluster::new(3);
    assert_eq!(cluster.propose(2, 7), Err(Rejection::NotLeading(None)));
    cluster.elect(1);
    cluster.settle();
    assert_eq!(cluster.propose(2, 7), Err(Rejection::NotLeading(Some(NodeId(1)))));
}

#[test]
fn a_new_leader_serves_when_its_inherited_log_is_decided() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 3), (3, 1)]);
    assert!(cluster.propose(1, 7).is_ok());
    cluster.settle();
    cluster.restart(1);
    cluster.cut(&[]);
    cluster.ask_to_lead(2);
    cluster.settle_votes();
    assert!(cluster.node(2).leads().is_some());
    assert_eq!(cluster.propose(2, 8), Err(Rejection::NotReady));
    cluster.pass(ELECTION_US / 2);
    cluster.settle();
    assert!(cluster.propose(2, 8).is_ok());
    cluster.settle();
    assert_eq!(cluster.values(2), [7, 8]);
    let inherited = cluster.node(2).store().entry(Slot(2)).map(|entry| entry.term.leader());
    assert_eq!(inherited, Some(NodeId(1)), "an inherited entry keeps its term");
}

#[test]
fn a_partitioned_node_does_not_disrupt_a_leader_with_a_quorum() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    let before = cluster.node(1).leads();
    cluster.cut(&[(1, 3)]);
    for _ in 0..10 {
        cluster.pass(ELECTION_US / 2);
        cluster.settle();
    }
    assert!(cluster.asked_to_lead(3), "node 3 receives no heartbeat");
    assert_eq!(cluster.node(1).leads(), before, "node 3 does not disrupt the leader");
    let promised = [1, 2, 3].map(|node| cluster.node(node).store().promised());
    assert_eq!(promised, [before.unwrap(); 3], "node 3 raises no promise");
}

#[test]
fn a_leader_without_a_quorum_steps_down() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(2, 1), (3, 1)]);
    for _ in 0..10 {
        cluster.pass(ELECTION_US / 2);
        cluster.settle();
    }
    assert_eq!(cluster.node(1).leads(), None);
    let leader = [2, 3].into_iter().find(|node| cluster.node(*node).is_ready());
    assert!(leader.is_some(), "the others have elected another leader");
}

#[test]
fn a_returning_follower_receives_the_missing_entries() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 3), (3, 1)]);
    for value in 0..1000 {
        assert!(cluster.propose(1, value).is_ok());
        cluster.settle();
    }
    assert!(cluster.values(3).is_empty());
    cluster.cut(&[]);
    cluster.pass(ELECTION_US / 2);
    cluster.settle();
    cluster.pass(ELECTION_US / 2);
    cluster.settle();
    assert_eq!(cluster.values(3).len(), 1000);
}

/// Builds a cluster whose leader has 600 entries, and has never heard from node 3.
fn with_a_silent_voter() -> TestCluster {
    let mut cluster = TestCluster::new(3);
    cluster.cut(&[(1, 3), (3, 1)]);
    cluster.elect(1);
    cluster.settle();
    for value in 0..600 {
        assert!(cluster.propose(1, value).is_ok());
        cluster.settle();
    }
    for _ in 0..4 {
        cluster.pass(HEARTBEAT_US);
        cluster.settle();
    }
    cluster.take_sent(3);
    cluster
}

#[test]
fn a_silent_voter_receives_one_small_message_per_heartbeat() {
    let mut cluster = with_a_silent_voter();
    for value in 0..10 {
        for _ in 0..5 {
            assert!(cluster.propose(1, value).is_ok());
            cluster.settle();
            cluster.step(1, Input::Announce);
            cluster.settle();
        }
        cluster.pass(HEARTBEAT_US);
        cluster.settle();
    }
    let (messages, entries) = cluster.take_sent(3);
    assert!(messages <= 10 && entries <= 10, "{messages} messages with {entries} entries in 10 heartbeats");
}

#[test]
fn a_silent_voter_does_not_receive_a_snapshot_again() {
    let mut cluster = with_a_silent_voter();
    let decided = cluster.node(1).store().decided();
    cluster.compact(1, decided, 1);
    cluster.cut(&[(3, 1)]);
    for _ in 0..20 {
        cluster.pass(HEARTBEAT_US);
        let is_snapshot = |message: &Message<u64, u64>| matches!(message, Message::InstallSnapshot { .. });
        assert_eq!(cluster.settle_counting(is_snapshot), 0, "node 3 has answered nothing");
    }
    cluster.cut(&[]);
    cluster.pass(HEARTBEAT_US);
    cluster.settle();
    assert_eq!(cluster.node(3).store().decided(), decided);
}

#[test]
fn a_snapshot_replaces_compacted_entries() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 3), (3, 1)]);
    for value in 1..=10 {
        assert!(cluster.propose(1, value).is_ok());
        cluster.settle();
    }
    cluster.compact(1, Slot(8), 28);
    cluster.cut(&[]);
    for _ in 0..3 {
        cluster.pass(ELECTION_US / 2);
        cluster.settle();
    }
    assert_eq!(cluster.node(3).store().snapshot().state, 28);
    assert_eq!(cluster.node(3).store().decided(), Slot(11));
    assert_eq!(cluster.values(3), [8, 9, 10], "node 3 has the entries after the snapshot");
    cluster.restart(3);
    assert_eq!(
        cluster.node(3).store().snapshot().last.slot,
        Slot(8),
        "node 3 keeps the snapshot after a restart"
    );
}

#[test]
fn undecided_entries_are_not_compacted() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 2), (1, 3)]);
    assert_eq!(cluster.propose(1, 7), Ok(Slot(2)));
    cluster.compact(1, Slot(2), 7);
    assert_eq!(cluster.node(1).store().snapshot().last.slot, Slot(0));
}

#[test]
fn a_voter_is_added_and_another_removed() {
    let mut cluster = TestCluster::new(4);
    cluster.elect(1);
    cluster.settle();
    assert!(cluster.propose(1, 7).is_ok());
    cluster.settle();
    let [four, three] = [&[1, 2, 3, 4][..], &[2, 3, 4]].map(|some| Configuration::new(nodes(some)).unwrap());
    assert_eq!(cluster.change(1, &three), Err(Rejection::MoreThanOneVoter));
    let before = cluster.node(1).leads().unwrap();
    assert!(cluster.change(1, &four).is_ok());
    assert_eq!(cluster.propose(1, 8), Err(Rejection::Changing));
    assert_eq!(cluster.change(1, &four), Err(Rejection::Changing));
    cluster.settle();
    let after = cluster.node(1).leads().unwrap();
    assert!(after > before && after.start() > before.start(), "the new configuration needs a new promise");
    assert_eq!(cluster.values(4), [7], "the added voter has the whole log");
    assert!(cluster.change(1, &three).is_ok());
    for _ in 0..6 {
        cluster.pass(ELECTION_US);
        cluster.settle();
    }
    assert_eq!(cluster.node(1).leads(), None, "the removed voter has stepped down");
    let leader = [2, 3, 4].into_iter().find(|node| cluster.node(*node).is_ready()).unwrap();
    assert!(cluster.propose(leader, 9).is_ok());
    cluster.settle();
    assert_eq!(cluster.values(leader), [7, 9]);
}

/// Builds a cluster in which the leader has decided a change, has asked these nodes for a vote under it, and is then
/// cut off: it alone knew that the change is decided.
fn with_a_decided_change_that_only_the_lost_leader_knows(asked: &[u128]) -> TestCluster {
    let mut cluster = TestCluster::new(4);
    cluster.elect(1);
    cluster.settle();
    assert!(cluster.propose(1, 7).is_ok());
    cluster.settle();
    cluster.cut(&[(1, 3), (3, 1)]);
    let four = Configuration::new(nodes(&[1, 2, 3, 4])).unwrap();
    assert_eq!(cluster.change(1, &four), Ok(Slot(3)));
    cluster.deliver_next();
    cluster.deliver_next();
    let one = cluster.node(1).store();
    assert_eq!(one.start(), Slot(4), "node 1 knows that node 2 has the change");
    let term = Term::new(Slot(4), 1, NodeId(1));
    let candidacy = VoteRequest { is_pre_vote: false, term, accepted: one.accepted(), last: one.last() };
    cluster.pass(ELECTION_US * 2);
    cluster.take_messages();
    for node in asked {
        cluster.deliver(*node, 1, Message::RequestVote(candidacy));
        assert_eq!(cluster.node(*node).store().promised().start(), Slot(4));
        assert_eq!(
            cluster.node(*node).store().start(),
            Slot(1),
            "node {node} has promised and does not know the configuration"
        );
    }
    cluster.take_messages();
    cluster.cut(&[(1, 2), (1, 3), (1, 4), (2, 1), (3, 1), (4, 1)]);
    cluster
}

#[test]
fn a_voter_learns_a_configuration_that_it_has_promised_under() {
    for asked in [&[2][..], &[3], &[2, 3], &[2, 3, 4]] {
        let mut cluster = with_a_decided_change_that_only_the_lost_leader_knows(asked);
        for _ in 0..20 {
            cluster.pass(ELECTION_US);
            cluster.settle();
        }
        let leader = [2, 3, 4].into_iter().find(|node| cluster.node(*node).is_ready());
        let leader = leader.unwrap_or_else(|| panic!("no node leads after {asked:?} were asked"));
        assert_eq!(cluster.node(leader).store().start(), Slot(4));
        assert_eq!(cluster.values(leader), [7]);
    }
}

#[test]
fn a_leader_rejects_proposals_beyond_its_undecided_limit() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 2), (1, 3)]);
    let undecided = Options::default().undecided;
    for value in 0..undecided {
        assert!(cluster.propose(1, value).is_ok());
    }
    assert_eq!(cluster.propose(1, 0), Err(Rejection::Full));
}

#[test]
fn a_voter_refuses_a_term_that_is_not_the_senders() {
    let mut cluster = TestCluster::new(3);
    let term = Term::new(Slot(1), 9, NodeId(3));
    let asked = VoteRequest { is_pre_vote: false, term, accepted: Term::none(), last: Slot(0) };
    cluster.deliver(1, 2, Message::RequestVote(asked));
    assert_eq!(cluster.node(1).store().promised(), Term::none(), "the term names another leader");
    cluster.deliver(1, 3, Message::RequestVote(asked));
    assert_eq!(cluster.node(1).store().promised(), term);
}

fn early_cluster(nodes: u128) -> TestCluster {
    TestCluster::with(nodes, Options { early: true, ..Options::default() })
}

#[test]
fn followers_store_in_parallel_with_the_leader() {
    let mut cluster = early_cluster(3);
    cluster.elect(1);
    cluster.settle();
    cluster.slow_down(1);
    cluster.propose_early(1, 7);
    cluster.settle();
    for follower in [2, 3] {
        assert!(
            cluster.node(follower).store().entry(Slot(2)).is_some(),
            "node {follower} has no entry in slot 2"
        );
    }
    assert_eq!(
        cluster.values(1),
        [7],
        "two of three nodes have stored the entry: the disk of the leader is not needed"
    );
}

#[test]
fn a_leader_counts_itself_for_stored_entries_only() {
    let mut cluster = early_cluster(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 3), (3, 1)]);
    cluster.slow_down(1);
    cluster.propose_early(1, 7);
    cluster.settle();
    assert!(cluster.node(2).store().entry(Slot(2)).is_some());
    assert_eq!(cluster.values(1), [0; 0], "only one of three nodes has stored the entry");
    cluster.flush();
    assert_eq!(cluster.values(1), [7], "the leader decides as soon as its disk has the entry");
}

#[test]
fn a_single_voter_decides_when_its_entry_is_stored() {
    let mut cluster = early_cluster(1);
    cluster.elect(1);
    cluster.slow_down(1);
    cluster.propose_early(1, 7);
    assert_eq!(cluster.values(1), [0; 0]);
    cluster.flush();
    assert_eq!(cluster.values(1), [7], "the leader decides without a tick");
}

#[test]
fn a_leader_sends_nothing_before_its_term_is_stored() {
    let mut cluster = early_cluster(3);
    cluster.ask_to_lead(1);
    cluster.settle_votes_but_the_last();
    cluster.slow_down(1);
    cluster.settle();
    assert!(cluster.node(1).leads().is_some());
    cluster.pass(200_000);
    cluster.settle();
    assert_eq!(cluster.node(2).leader(), None, "node 1 has sent nothing under its term");
    cluster.flush();
    cluster.settle();
    assert!(cluster.node(1).is_ready());
}

#[test]
fn a_leader_that_lost_an_unstored_entry_receives_it_back() {
    let mut cluster = early_cluster(3);
    cluster.elect(1);
    cluster.settle();
    cluster.slow_down(1);
    cluster.propose_early(1, 7);
    cluster.settle();
    cluster.restart(1);
    assert!(cluster.node(1).store().entry(Slot(2)).is_none(), "node 1 has lost the entry");
    cluster.elect(2);
    cluster.pass(500_000);
    cluster.settle();
    for node in 1..=3 {
        assert_eq!(cluster.values(node), [7], "node {node}");
    }
}

type TestOutput = Output<u64, ()>;

fn append(to: u128, before: u64, entries: u64, decided: u64) -> TestOutput {
    let term = term_of_one();
    let mut entries = (1..=entries).map(|more| Entry { term, payload: EntryPayload::Value(before + more) });
    let (entry, more) = (entries.next(), entries.collect());
    let before = LogId { slot: Slot(before), term };
    let append = Append { term, before, entry, more, inherited: Slot(1), decided: Slot(decided) };
    Output::Send(NodeId(to), Message::Append(Box::new(append)))
}

fn joined(mut outputs: Vec<TestOutput>, batch: usize) -> Vec<TestOutput> {
    let to = |output: &TestOutput| match output {
        Output::Send(to, _) => Some(*to),
        _ => None,
    };
    coalesce_appends(&mut outputs, batch, to, |output| match output {
        Output::Send(_, Message::Append(append)) => Some(append),
        _ => None,
    });
    outputs
}

#[test]
fn consecutive_appends_to_a_node_become_one_message() {
    let entries = (5..1029).flat_map(|before| [append(2, before, 1, 3), append(3, before, 1, before)]);
    let few = joined(entries.collect(), 256);
    let expected = [5, 261, 517, 773]
        .into_iter()
        .flat_map(|before| [append(2, before, 256, 3), append(3, before, 256, before + 255)]);
    assert_eq!(few, expected.collect::<Vec<_>>());
}

#[test]
fn a_heartbeat_joins_the_next_append() {
    assert_eq!(joined(vec![append(2, 5, 0, 4), append(2, 5, 2, 3)], 8), [append(2, 5, 2, 4)]);
}

#[test]
fn appends_that_are_not_consecutive_stay_separate() {
    for apart in [
        vec![append(2, 5, 1, 0), append(2, 7, 1, 0)],
        vec![append(2, 5, 2, 0), append(2, 6, 1, 0)],
        vec![append(2, 5, 3, 0), append(2, 8, 2, 0)],
    ] {
        assert_eq!(joined(apart.clone(), 4), apart);
    }
    let mut of_another_term = append(2, 6, 1, 0);
    if let Output::Send(_, Message::Append(append)) = &mut of_another_term {
        append.before.term = Term::none();
    }
    let apart = vec![append(2, 5, 1, 0), of_another_term];
    assert_eq!(joined(apart.clone(), 4), apart);
}

/// Entries do not overtake another message to the same node; an output in between that is not a message does not
/// matter.
#[test]
fn appends_do_not_overtake_other_messages() {
    let term = term_of_one();
    let lead = Output::Send(NodeId(2), Message::TimeoutNow { term, to: NodeId(3) });
    let apart = vec![append(2, 5, 1, 0), lead, append(2, 6, 1, 0)];
    assert_eq!(joined(apart.clone(), 4), apart);
    let between = vec![append(2, 5, 1, 0), Output::Decided(Slot(5)), append(2, 6, 1, 0)];
    assert_eq!(joined(between, 4), [append(2, 5, 2, 0), Output::Decided(Slot(5))]);
}

/// Returns the decided entries of the first node as an input that does not come from a leader.
fn history(cluster: &TestCluster) -> Input<u64, u64> {
    let store = cluster.node(1).store();
    let entries = (1..=store.decided().0).filter_map(|slot| store.entry(Slot(slot)).cloned()).collect();
    Input::Learn { first: Slot(1), entries }
}

#[test]
fn learned_entries_survive_a_restart() {
    let mut cluster = TestCluster::new(4);
    cluster.elect(1);
    for value in [7, 8] {
        cluster.propose(1, value).unwrap();
        cluster.settle();
    }
    let history = history(&cluster);
    cluster.step(4, history);
    assert_eq!(cluster.values(4), [7, 8]);
    cluster.restart(4);
    assert_eq!(cluster.values(4), [7, 8]);
}

#[test]
fn learned_entries_after_a_gap_are_ignored() {
    let mut cluster = TestCluster::new(4);
    cluster.elect(1);
    cluster.propose(1, 7).unwrap();
    cluster.settle();
    let Input::Learn { entries, .. } = history(&cluster) else { unreachable!() };
    cluster.step(4, Input::Learn { first: Slot(2), entries });
    assert_eq!(cluster.node(4).store().decided(), Slot(0));
}

/// A stale leader has another entry in a decided slot. A follower that has learned the decided entry must not
/// acknowledge the leader's entry.
#[test]
fn a_follower_rejects_a_stale_leaders_entry_in_a_decided_slot() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.propose(1, 7).unwrap();
    cluster.settle();
    let history = history(&cluster);
    let mut other = TestCluster::new(3);
    other.step(3, history);
    let late = Term::new(Slot(1), 9, NodeId(2));
    let Some(mut entry) = cluster.node(1).store().entry(Slot(2)).cloned() else { unreachable!() };
    entry.term = late;
    let before = LogId { slot: Slot(1), term: cluster.node(1).store().entry(Slot(1)).unwrap().term };
    for (before, entry) in
        [(before, Some(entry)), (before, None), (LogId { slot: Slot(2), term: late }, None)]
    {
        let append =
            Append { term: late, before, entry, more: Vec::new(), inherited: Slot(9), decided: Slot(0) };
        other.step(3, Input::Message(NodeId(2), Message::Append(Box::new(append))));
        assert_eq!(other.take_messages(), [Message::AppendRejected { term: late, have: Slot(2) }]);
        assert_eq!(other.values(3), [7]);
    }
}

#[test]
fn a_leader_steps_down_when_it_learns_a_conflicting_decision() {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 2), (1, 3)]);
    cluster.propose(1, 7).unwrap();
    let Some(mut entry) = cluster.node(1).store().entry(Slot(2)).cloned() else { unreachable!() };
    entry.term = Term::new(Slot(1), 9, NodeId(2));
    cluster.step(1, Input::Learn { first: Slot(2), entries: vec![entry] });
    assert_eq!((cluster.node(1).leads(), cluster.node(1).store().decided()), (None, Slot(2)));
}

#[test]
fn a_proven_snapshot_replaces_entries_and_an_equal_snapshot() {
    let mut cluster = TestCluster::new(4);
    let last = LogId { slot: Slot(9), term: Term::new(Slot(1), 1, NodeId(1)) };
    let configuration = Configuration::new(nodes(&[1, 2])).unwrap();
    let snapshot = Snapshot { last, start: Slot(5), configuration, state: 1 };
    let outputs = cluster.step(4, Input::RestoreSnapshot(snapshot.clone()));
    assert_eq!(outputs, [Output::Installed(Slot(9))]);
    cluster.step(4, Input::RestoreSnapshot(Snapshot { state: 2, ..snapshot.clone() }));
    let older = LogId { slot: Slot(8), ..last };
    cluster.step(4, Input::RestoreSnapshot(Snapshot { last: older, state: 3, ..snapshot.clone() }));
    cluster.pass(ELECTION_US / 2);
    cluster.restart(4);
    let store = cluster.node(4).store();
    assert_eq!((store.decided(), store.start(), store.snapshot().state), (Slot(9), Slot(5), 2));
    let beyond = LogId { slot: Slot(u64::MAX), ..last };
    assert_eq!(cluster.step(4, Input::RestoreSnapshot(Snapshot { last: beyond, ..snapshot })), []);
}
