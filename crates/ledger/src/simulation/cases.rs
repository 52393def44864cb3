//! Known cases, each by its name: a few nodes whose messages and disks the test controls.

mod dedup;
mod leadership;

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;

use holdoff_driver::{Driver, WriteOptions};
use holdoff_paxos::log::Rejection;
use holdoff_paxos::{Configuration, NodeId, Slot};
use holdoff_testbed::fault::inject;

use super::chunks::{self, Chunks};
use super::node::TestNotary;
use super::node::{key, options};
use crate::ledger::faulty::{FaultyLedger, LedgerFault};
use crate::machine::{Command, Commands, KeyValue, Values};
use crate::{
    ChangeError, Consistency, Hash, Input, Ledger, Message, MessageOf, Options, Outcome, Output, OutputOf,
    ReadId, Recovered, Store, SubmissionId, TxId, TxKey, coalesce_appends,
};

type Delivery = (NodeId, NodeId, MessageOf<KeyValue>);
type TestNode = (Driver<FaultyLedger<KeyValue, TestNotary>>, Store<KeyValue>, Chunks);

/// Nodes with disks that store at once, and with messages that the test delivers.
pub(super) struct TestCluster {
    nodes: Vec<TestNode>,
    pub(super) post: VecDeque<Delivery>,
    /// The nodes that neither receive nor send.
    pub(super) cut_off: Vec<NodeId>,
    /// Two nodes between which no message arrives, in either direction.
    apart: Option<(NodeId, NodeId)>,
    /// True if messages that submit transactions are lost.
    loses_submissions: bool,
    /// The node whose disk stores nothing.
    hung_disk: Option<usize>,
    /// The chunks that wait for slow disks, if the disks are slow.
    slow_chunks: Option<Vec<(usize, Hash, u64)>>,
    options: Options,
    answered: Vec<ReadId>,
    pub(super) ended: Vec<(TxId, Outcome<Values>)>,
    rerouted: Vec<(TxId, NodeId, NodeId)>,
    transfers: Vec<Result<NodeId, Rejection>>,
    pub(super) changed: Vec<Result<(Configuration, Slot), ChangeError>>,
    now_us: u64,
}

fn roll_of(number: usize) -> impl FnMut() -> u32 {
    move || u32::MAX / 8 * u32::try_from(number).unwrap()
}

pub(super) fn id(number: usize) -> NodeId {
    NodeId(number as u128)
}

/// Returns the key of a transaction that no node ever refuses because of its birth.
pub(super) fn tx(id: u128) -> TxKey {
    TxKey::never_expires(TxId(id))
}

pub(super) fn add() -> Commands {
    vec![Command::Increment(key(0), 1)]
}

impl TestCluster {
    /// Creates the nodes, of which the first `voters` vote.
    pub(super) fn new(voters: usize, nodes: usize) -> Self {
        Self::with_options(voters, nodes, options())
    }

    pub(super) fn with_options(voters: usize, nodes: usize, options: Options) -> Self {
        let voters = Configuration::new((1..=voters).map(id)).unwrap();
        let node = |number| {
            let store = Ledger::<KeyValue, TestNotary>::empty(voters.clone());
            (Self::ledger(number, options.clone(), store.clone().into(), 0), store, Chunks::default())
        };
        Self {
            nodes: (1..=nodes).map(node).collect(),
            post: VecDeque::new(),
            cut_off: Vec::new(),
            apart: None,
            loses_submissions: false,
            hung_disk: None,
            slow_chunks: None,
            options,
            answered: Vec::new(),
            ended: Vec::new(),
            rerouted: Vec::new(),
            transfers: Vec::new(),
            changed: Vec::new(),
            now_us: 0,
        }
    }

    fn ledger(
        number: usize,
        options: Options,
        recovered: Recovered<KeyValue>,
        now_us: u64,
    ) -> Driver<FaultyLedger<KeyValue, TestNotary>> {
        let (me, roll) = (id(number), roll_of(number)());
        let ledger = FaultyLedger::new(me, options, TestNotary(me), recovered, now_us, roll).unwrap();
        Driver::new(ledger, WriteOptions::default())
    }

    pub(super) fn node(&self, number: usize) -> &Ledger<KeyValue, TestNotary> {
        self.nodes[number - 1].0.core()
    }

    pub(super) fn restart(&mut self, number: usize) {
        let (_, store, chunks) = &self.nodes[number - 1];
        let recovered = chunks.recover(store.clone());
        self.nodes[number - 1].0 = Self::ledger(number, self.options.clone(), recovered, self.now_us);
    }

    pub(super) fn step(&mut self, number: usize, input: Input<KeyValue>) {
        let (driver, store, _) = &mut self.nodes[number - 1];
        let (now_us, mut roll) = (self.now_us, roll_of(number));
        driver.step(now_us, &mut roll, input);
        if self.hung_disk != Some(number) {
            let stored = driver.write_through(now_us, &mut roll, |records| {
                for record in records {
                    store.apply(record);
                }
                Ok::<_, Infallible>(())
            });
            let Ok(()) = stored;
        }
        for output in driver.take_outputs() {
            self.perform(number, output);
        }
    }

    fn perform(&mut self, number: usize, output: OutputOf<KeyValue>) {
        match output {
            Output::Send(to, message) => self.post.push_back((id(number), to, message)),
            Output::Ended(SubmissionId(id), outcome) => self.ended.push((TxId(u128::from(id)), outcome)),
            Output::Rerouted { tx_id, from, to } => self.rerouted.push((tx_id, from, to)),
            Output::Answered { read, .. } => self.answered.push(read),
            Output::Changed(to, slot) => self.changed.push(Ok((to, slot))),
            Output::ChangeFailed(_, why) => self.changed.push(Err(why)),
            Output::NotAnswered(..) | Output::Compacted(_) => {}
            Output::LeadershipTransferred(to) => self.transfers.push(Ok(to)),
            Output::TransferFailed(why) => self.transfers.push(Err(why)),
            Output::Diverged(divergence) => panic!("{divergence}"),
            Output::SaveSnapshot(id) => {
                let chunks =
                    self.node(number).unsaved_snapshot(id).map_or(Vec::new(), |it| chunks::encode(&it));
                let count = chunks.len() as u64;
                for (at, chunk) in (0..).zip(chunks) {
                    self.nodes[number - 1].2.put(id, at, chunk);
                }
                self.step(number, Input::SnapshotSaved { snapshot: id, chunks: count });
            }
            Output::ExpectSnapshot(snapshot) => self.nodes[number - 1].2.expect(snapshot.map(|it| *it)),
            Output::StoreChunk { snapshot, number: at, bytes } => {
                self.nodes[number - 1].2.put(snapshot, at, bytes);
                match &mut self.slow_chunks {
                    Some(writing) => writing.push((number, snapshot, at)),
                    None => self.step(number, Input::ChunkStored { snapshot, number: at }),
                }
            }
            Output::LoadSnapshot(id, count) => {
                let loaded = self.nodes[number - 1].2.load(id, count);
                self.step(number, loaded);
            }
            Output::ReadChunk { to, snapshot, number: at } => {
                let bytes = self.nodes[number - 1].2.get(snapshot, at);
                let chunk = Message::Chunk { snapshot, number: at, bytes };
                self.post.push_back((id(number), to, chunk));
            }
        }
    }

    /// Delivers all messages, and the messages that these cause.
    pub(super) fn deliver(&mut self) {
        self.deliver_until(|_| false);
    }

    /// Delivers messages one after another, until a condition holds.
    pub(super) fn deliver_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        while !is_reached(self)
            && let Some((from, to, message)) = self.post.pop_front()
        {
            let apart = self.apart == Some((from, to)) || self.apart == Some((to, from));
            let is_lost = self.loses_submissions && matches!(message, Message::Submit { .. });
            let is_cut = apart || is_lost || self.cut_off.contains(&from) || self.cut_off.contains(&to);
            let number = usize::try_from(to.0).unwrap();
            if !is_cut && number <= self.nodes.len() {
                self.step(number, Input::Message(from, message));
            }
        }
    }

    /// Advances the time, with ticks and message delivery.
    pub(super) fn pass(&mut self, us: u64) {
        let until_us = self.now_us + us;
        while self.now_us < until_us {
            self.now_us += 10_000;
            for number in 1..=self.nodes.len() {
                self.step(number, Input::Tick);
                self.deliver();
            }
        }
    }

    fn submit(&mut self, number: usize, tx_id: u128) {
        let tx = TxKey { id: TxId(tx_id), birth: self.node(number).state().index() };
        self.submit_goal(number, tx, add());
        self.deliver();
    }

    /// Submits a transaction, with the usual deadline.
    pub(super) fn submit_goal(&mut self, number: usize, tx: TxKey, goal: Commands) {
        let submission = SubmissionId(u64::try_from(tx.id.0).unwrap());
        let deadline_us = self.now_us + options().result_us;
        self.step(number, Input::Submit { submission, tx, goal, deadline_us });
    }

    /// Changes the voters, and waits until another change is possible.
    pub(super) fn change(&mut self, to: &Configuration) {
        for _ in 0..100 {
            let leader = self.leader();
            self.step(leader, Input::ChangeConfiguration(to.clone()));
            self.deliver();
            self.pass(100_000);
            if matches!(self.changed.pop(), Some(Ok(_))) {
                self.pass(500_000);
                return;
            }
        }
        panic!("the voters cannot be changed to {to:?}");
    }

    pub(super) fn leader(&self) -> usize {
        (1..=self.nodes.len()).find(|number| self.node(*number).is_ready()).unwrap()
    }

    pub(super) fn fill(&mut self, through: u64) {
        let leader = self.leader();
        while self.node(leader).state().index() < Slot(through) {
            let tx_id = 1000 + u128::from(self.node(leader).state().index().0);
            self.submit(leader, tx_id);
        }
        self.pass(100_000);
    }
}

/// A failure of the source document's algorithm: the root was at index 17 and its leader at index 25; entries 18 to 23
/// were missing, and the root had received 24 and 25. It advanced its index without the missing entries.
#[test]
fn a_node_at_17_does_not_skip_missing_entries_up_to_25() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.fill(17);
    cluster.pass(1_000_000);
    let root = 4;
    assert_eq!(cluster.node(root).state().index(), Slot(17));
    cluster.cut_off = vec![id(root)];
    cluster.fill(25);
    let held = cluster.node(cluster.leader()).history.iter().skip(23).take(2).cloned().collect::<Vec<_>>();
    let certificate = cluster.node(cluster.leader()).certificates.last_key_value().unwrap().1.clone();
    assert_eq!(certificate.head.index, Slot(25));

    // Entries 24 and 25 arrive, and time passes: without 18 to 23 they do not advance the index.
    let late = Message::History { first: Slot(24), entries: held, rest: Vec::new(), certificate };
    for _ in 0..2 {
        cluster.step(root, Input::Message(id(1), late.clone()));
        cluster.pass(2_000_000);
        assert_eq!(cluster.node(root).state().index(), Slot(17));
    }

    cluster.cut_off.clear();
    cluster.pass(2_000_000);
    let (root, leader) = (cluster.node(root).state(), cluster.node(cluster.leader()).state());
    assert_eq!((root.index(), root.hash(), root.machine()), (Slot(25), leader.hash(), leader.machine()));
}

/// A second copy could replace a chunk after its content was verified.
#[test]
fn a_chunk_that_is_being_written_is_not_written_again() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    cluster.fill(60);
    cluster.cut_off.clear();
    cluster.slow_chunks = Some(Vec::new());
    cluster.pass(2_000_000);
    let writing = cluster.slow_chunks.take().unwrap();
    let distinct: BTreeSet<_> = writing.iter().collect();
    assert!(!writing.is_empty() && distinct.len() == writing.len(), "{writing:?}");
    for (number, snapshot, at) in writing {
        cluster.step(number, Input::ChunkStored { snapshot, number: at });
    }
    cluster.pass(2_000_000);
    assert_eq!(cluster.node(4).state().hash(), cluster.node(1).state().hash());
}

#[test]
fn a_single_voter_leads_and_restores_its_log() {
    let mut cluster = TestCluster::new(1, 1);
    cluster.pass(1_000_000);
    cluster.submit(1, 1);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { index: Slot(2), .. })]));
    cluster.restart(1);
    assert_eq!(cluster.node(1).state().index(), Slot(0));
    cluster.pass(1_000_000);
    assert_eq!(cluster.node(1).state().index(), Slot(3), "the stored entries, and a no-op entry");
    cluster.submit(1, 1);
    assert!(matches!(cluster.ended[1..], [(TxId(1), Outcome::Committed { index: Slot(2), .. })]));
}

#[test]
fn one_of_two_voters_commits_nothing_without_the_other() {
    let mut cluster = TestCluster::new(2, 2);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    cluster.cut_off = vec![id(3 - leader)];
    cluster.submit(leader, 1);
    cluster.pass(1_000_000);
    cluster.submit(leader, 2);
    let before = cluster.node(leader).state().index();
    cluster.pass(2_000_000);
    let expected = [(TxId(1), Outcome::Unknown { absent_through: before }), (TxId(2), Outcome::NoQuorum)];
    assert_eq!(cluster.ended, expected, "transaction 1 is in a log, transaction 2 is in none");
    assert_eq!(cluster.node(leader).state().index(), before);
}

#[test]
fn a_transaction_is_rerouted_to_the_next_leader_and_commits_once() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let first = cluster.leader();
    let at = first % 3 + 1;
    cluster.cut_off = vec![id(first)];
    cluster.submit(at, 1);
    cluster.pass(850_000);
    let second = cluster.leader();
    assert_ne!(second, first);
    if second != at {
        assert_eq!(cluster.rerouted, [(TxId(1), id(first), id(second))]);
    }
    cluster.pass(1_000_000);
    cluster.cut_off.clear();
    cluster.pass(1_000_000);
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(cluster.ended.iter().filter(committed).count(), 1, "{:?}", cluster.ended);
    let values: Vec<_> = (1..=3).map(|number| cluster.node(number).state().hash()).collect();
    assert!(values.iter().all(|hash| *hash == values[0]));
}

/// A transaction that is submitted again while it is in flight, or when it is done, is the same transaction.
#[test]
fn a_repeated_submission_is_the_same_transaction() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    for _ in 0..3 {
        cluster.submit_goal(leader, tx(1), add());
    }
    cluster.deliver();
    cluster.pass(500_000);
    cluster.submit(leader % 3 + 1, 1);
    let outcomes: Vec<_> = cluster.ended.iter().map(|(_, outcome)| outcome.clone()).collect();
    assert_eq!(outcomes.len(), 4, "each submission has an outcome");
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    assert!(matches!(&outcomes[0], Outcome::Committed { result, .. } if *result == [Some(1.into())]));
}

#[test]
fn tampered_history_is_rejected() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    cluster.cut_off = vec![id(4)];
    cluster.fill(9);
    let before = cluster.node(4).state().index();
    cluster.step(1, Input::Message(id(4), Message::Fetch { after: before, or_state: false }));
    let (_, _, history) = cluster.post.pop_back().unwrap();
    cluster.post.clear();
    let Message::History { first, entries, rest, certificate } = history else { panic!("{history:?}") };
    let send = |cluster: &mut TestCluster,
                entries: &[crate::LogEntry<KeyValue>],
                certificate: &crate::Certificate| {
        let (entries, rest, certificate) = (entries.to_vec(), rest.clone(), certificate.clone());
        cluster.step(4, Input::Message(id(1), Message::History { first, entries, rest, certificate }));
        cluster.node(4).state().index()
    };

    let mut tampered = entries.clone();
    if let Some(holdoff_paxos::log::EntryPayload::Value(value)) =
        tampered.last_mut().map(|entry| &mut entry.payload)
    {
        value.tx_id = TxId(77);
    }
    assert_eq!(send(&mut cluster, &tampered, &certificate), before);
    let mut few = certificate.clone();
    few.signatures.truncate(1);
    few.signatures.push(few.signatures[0].clone());
    assert_eq!(send(&mut cluster, &entries, &few), before, "two signatures of one voter are no majority");
    let mut forged = certificate.clone();
    forged.signatures[0].1.0[0] ^= 1;
    forged.signatures.truncate(2);
    assert_eq!(send(&mut cluster, &entries, &forged), before);
    assert_eq!(send(&mut cluster, &entries[..entries.len() - 1], &certificate), before);
    assert_eq!(send(&mut cluster, &entries, &certificate), certificate.head.index);
    assert_eq!(
        send(&mut cluster, &entries, &certificate),
        certificate.head.index,
        "stale history changes nothing"
    );
}

/// Cuts off a leader at the time at which the voter that confirmed its term restarts, while another node has long been
/// trying to lead. Returns true if the leader ever served a read by its lease while the other node already served.
fn serves_a_stale_read(after_us: u64) -> bool {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let (other, voter) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.apart = Some((id(leader), id(other)));
    cluster.pass(1_000_000 + after_us);
    assert!(cluster.node(leader).is_ready(), "a majority reaches the leader");
    cluster.cut_off = vec![id(leader)];
    cluster.restart(voter);
    for read in 0..100 {
        cluster.pass(10_000);
        let serves = cluster.node(other).is_ready();
        cluster.step(
            leader,
            Input::Read {
                read: ReadId(read),
                goal: vec![Command::Get(key(0))],
                consistency: Consistency::Lease,
            },
        );
        if serves && cluster.answered.contains(&ReadId(read)) {
            return true;
        }
    }
    assert!(!cluster.answered.is_empty(), "the leader had a lease");
    assert!(cluster.node(other).is_ready() || cluster.node(voter).is_ready());
    false
}

#[test]
fn a_restarted_voter_waits_for_the_lease_to_expire() {
    let offsets = || (0..40).map(|tens| tens * 10_000);
    assert!(!offsets().any(serves_a_stale_read));
    assert!(
        inject(LedgerFault::ForgetLeaseGrant, || offsets().any(serves_a_stale_read)),
        "the injected fault was not found"
    );
}

/// A single voter, whose disk the test controls.
#[test]
fn a_single_voter_commits_when_its_disk_has_the_entry() {
    let voters = Configuration::new([id(1)]).unwrap();
    let mut options = options();
    options.log.early = true;
    let store = Ledger::<KeyValue, TestNotary>::empty(voters);
    let ledger = Ledger::new(id(1), options, TestNotary(id(1)), store.into(), 0, 0).unwrap();
    let mut driver = Driver::new(ledger, WriteOptions::default());
    let write = |driver: &mut Driver<Ledger<KeyValue, TestNotary>>| {
        driver.write_through(1_000_000, &mut || 0, |_| Ok::<_, Infallible>(())).unwrap();
    };

    driver.step(1_000_000, &mut || 0, Input::Tick);
    write(&mut driver);
    assert!(driver.core().is_ready());
    let (submission, tx, goal) = (SubmissionId(1), tx(1), add());
    driver.step(1_000_000, &mut || 0, Input::Submit { submission, tx, goal, deadline_us: 2_000_000 });
    assert!(driver.take_outputs().is_empty(), "the entry is not on disk");
    write(&mut driver);
    let ended = driver.take_outputs();
    assert!(
        matches!(ended[..], [Output::Ended(SubmissionId(1), Outcome::Committed { index: Slot(2), .. })]),
        "committed without a tick: {ended:?}"
    );
}

/// A forwarded submission and the answer to its caller depend on no record of the node that forwards it.
#[test]
fn a_follower_whose_disk_hangs_forwards_submissions_and_answers_their_callers() {
    let mut options = options();
    options.log.early = true;
    let mut cluster = TestCluster::with_options(3, 3, options);
    cluster.pass(1_000_000);
    let follower = cluster.leader() % 3 + 1;
    cluster.hung_disk = Some(follower);
    cluster.submit(follower, 1);
    cluster.pass(200_000);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { .. })]), "{:?}", cluster.ended);
}

/// Each submission ends at its own deadline, with what is known then.
#[test]
fn a_submission_ends_truthfully_at_its_own_deadline() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (leader, goal) = (cluster.leader(), add());
    let follower = leader % 3 + 1;
    let tx = TxKey { id: TxId(1), birth: cluster.node(follower).state().index() };
    let now_us = cluster.now_us;
    let submit = |submission, after_us| Input::Submit {
        submission: SubmissionId(submission),
        tx,
        goal: goal.clone(),
        deadline_us: now_us + after_us,
    };
    cluster.cut_off = vec![id(1), id(2), id(3)];
    // The follower still believes in the leader: the transaction leaves the node.
    cluster.step(follower, submit(1, 20_000));
    cluster.step(follower, submit(2, 5_000_000));
    cluster.pass(30_000);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Unknown { .. })]), "{:?}", cluster.ended);
    cluster.pass(3_000_000);
    assert_eq!(cluster.ended.len(), 1, "the other caller waits longer than the usual time");
    // No node leads by now, and this node hands a new transaction to no other node.
    let lonely = TxKey { id: TxId(3), ..tx };
    let deadline_us = cluster.now_us + 20_000;
    cluster
        .step(follower, Input::Submit { submission: SubmissionId(3), tx: lonely, goal: add(), deadline_us });
    cluster.pass(30_000);
    assert_eq!(cluster.ended[1], (TxId(3), Outcome::NoQuorum));
    cluster.cut_off.clear();
    cluster.pass(1_500_000);
    assert!(matches!(cluster.ended[2], (TxId(2), Outcome::Committed { .. })), "{:?}", cluster.ended);
}

/// As few messages as the batch size of the log allows.
#[test]
fn appends_of_many_submissions_are_coalesced() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let undecided = u128::from(options().log.undecided);
    for tx_id in 0..undecided {
        cluster.submit_goal(leader, tx(tx_id), add());
    }
    let mut outputs: Vec<_> =
        cluster.post.drain(..).map(|(_, to, message)| Output::Send(to, message)).collect();
    assert_eq!(outputs.len() as u128, 2 * undecided, "one message for each entry and follower");
    coalesce_appends(&mut outputs, options().log.batch);
    assert_eq!(outputs.len() as u128, 2 * undecided / options().log.batch as u128);
    for output in outputs {
        cluster.perform(leader, output);
    }
    cluster.deliver();
    assert_eq!(cluster.ended.len() as u128, undecided);
}
