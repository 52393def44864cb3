//! Known cases, each by its name: a few nodes whose messages and disks the test controls.

mod early;
mod handing;

use std::collections::VecDeque;
use std::convert::Infallible;

use holdoff_paxos::log::Refusal;
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::machine::{key, options};
use super::notary::Clerk;
use crate::flaw::{Flaw, Plant};
use crate::machine::{Command, Commands, KeyValue, Values};
use crate::{
    How, Input, Ledger, Letter, LetterOf, NotChanged, Outcome, Output, OutputOf, ReadId, Store, TxId, join,
};

type Post = (NodeId, NodeId, LetterOf<KeyValue>);

/// Nodes with disks that store at once, and with messages that the test delivers.
pub(super) struct Room {
    nodes: Vec<(Ledger<KeyValue, Clerk>, Store<KeyValue>)>,
    pub(super) post: VecDeque<Post>,
    /// The nodes that neither receive nor send.
    pub(super) cut_off: Vec<NodeId>,
    /// Two nodes between which no message arrives, in either direction.
    apart: Option<(NodeId, NodeId)>,
    answered: Vec<ReadId>,
    pub(super) ended: Vec<(TxId, Outcome<Values>)>,
    rerouted: Vec<(TxId, NodeId, NodeId)>,
    handed_over: Vec<Result<NodeId, Refusal>>,
    pub(super) changed: Vec<Result<(Configuration, Slot), NotChanged>>,
    now_us: u64,
}

pub(super) fn id(number: usize) -> NodeId {
    NodeId(number as u128)
}

pub(super) fn add() -> Commands {
    vec![Command::Increment(key(0), 1)]
}

impl Room {
    /// Creates the nodes, of which the first `voters` vote.
    pub(super) fn new(voters: usize, nodes: usize) -> Self {
        let voters = Configuration::new((1..=voters).map(id)).unwrap();
        let node = |number| {
            let store = Ledger::<KeyValue, Clerk>::empty(voters.clone());
            (Self::ledger(number, store.clone(), 0), store)
        };
        Self {
            nodes: (1..=nodes).map(node).collect(),
            post: VecDeque::new(),
            cut_off: Vec::new(),
            apart: None,
            answered: Vec::new(),
            ended: Vec::new(),
            rerouted: Vec::new(),
            handed_over: Vec::new(),
            changed: Vec::new(),
            now_us: 0,
        }
    }

    fn ledger(number: usize, store: Store<KeyValue>, now_us: u64) -> Ledger<KeyValue, Clerk> {
        let roll = u32::MAX / 8 * u32::try_from(number).unwrap();
        Ledger::new(id(number), options(), Clerk(id(number)), store, now_us, roll).unwrap()
    }

    pub(super) fn node(&self, number: usize) -> &Ledger<KeyValue, Clerk> {
        &self.nodes[number - 1].0
    }

    pub(super) fn restart(&mut self, number: usize) {
        let store = self.nodes[number - 1].1.clone();
        self.nodes[number - 1].0 = Self::ledger(number, store, self.now_us);
    }

    pub(super) fn step(&mut self, number: usize, input: Input<KeyValue>) {
        let roll = u32::MAX / 8 * u32::try_from(number).unwrap();
        let (ledger, store) = &mut self.nodes[number - 1];
        let stored = ledger.step(self.now_us, roll, input).release(|records| {
            for record in records {
                store.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        for output in stored.unwrap() {
            self.put_out(number, output);
        }
    }

    fn put_out(&mut self, number: usize, output: OutputOf<KeyValue>) {
        match output {
            Output::Send(to, letter) => self.post.push_back((id(number), to, letter)),
            Output::Ended(tx_id, outcome) => self.ended.push((tx_id, outcome)),
            Output::Rerouted { tx_id, from, to } => self.rerouted.push((tx_id, from, to)),
            Output::Answered { read, .. } => self.answered.push(read),
            Output::Changed(to, slot) => self.changed.push(Ok((to, slot))),
            Output::NotChanged(_, why) => self.changed.push(Err(why)),
            Output::NotAnswered(..) => {}
            Output::Stored { term, slot } => self.step(number, Input::Stored { term, slot }),
            Output::HandedOver(to) => self.handed_over.push(Ok(to)),
            Output::NotHandedOver(why) => self.handed_over.push(Err(why)),
            Output::Torn(tear) => panic!("{tear}"),
        }
    }

    /// Delivers all messages, and the messages that these cause.
    pub(super) fn deliver(&mut self) {
        while let Some((from, to, letter)) = self.post.pop_front() {
            let apart = self.apart == Some((from, to)) || self.apart == Some((to, from));
            let is_cut = apart || self.cut_off.contains(&from) || self.cut_off.contains(&to);
            let number = usize::try_from(to.0).unwrap();
            if !is_cut && number <= self.nodes.len() {
                self.step(number, Input::Message(from, letter));
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
        self.step(number, Input::Submit { tx_id: TxId(tx_id), goal: add() });
        self.deliver();
    }

    /// Changes the voters, and waits until another change is possible.
    pub(super) fn change(&mut self, to: &Configuration) {
        for _ in 0..100 {
            let leader = self.leader();
            self.step(leader, Input::Change(to.clone()));
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
fn the_root_at_17_the_leader_at_25() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.fill(17);
    room.pass(1_000_000);
    let root = 4;
    assert_eq!(room.node(root).state().index(), Slot(17));
    room.cut_off = vec![id(root)];
    room.fill(25);
    let held = room.node(room.leader()).history.iter().skip(23).take(2).cloned().collect::<Vec<_>>();
    let certificate = room.node(room.leader()).certificates.last_key_value().unwrap().1.clone();
    assert_eq!(certificate.head.index, Slot(25));

    // Entries 24 and 25 arrive, and time passes: without 18 to 23 they do not advance the index.
    let late = Letter::History { first: Slot(24), entries: held, rest: Vec::new(), certificate };
    for _ in 0..2 {
        room.step(root, Input::Message(id(1), late.clone()));
        room.pass(2_000_000);
        assert_eq!(room.node(root).state().index(), Slot(17));
    }

    room.cut_off.clear();
    room.pass(2_000_000);
    let (root, leader) = (room.node(root).state(), room.node(room.leader()).state());
    assert_eq!((root.index(), root.hash(), root.machine()), (Slot(25), leader.hash(), leader.machine()));
}

#[test]
fn who_is_alone_leads_itself() {
    let mut room = Room::new(1, 1);
    room.pass(1_000_000);
    room.submit(1, 1);
    assert!(matches!(room.ended[..], [(TxId(1), Outcome::Committed { index: Slot(2), .. })]));
    room.restart(1);
    assert_eq!(room.node(1).state().index(), Slot(0));
    room.pass(1_000_000);
    assert_eq!(room.node(1).state().index(), Slot(3), "all that was stored, and a barrier");
    room.submit(1, 1);
    assert!(matches!(room.ended[1..], [(TxId(1), Outcome::Committed { index: Slot(2), .. })]));
}

#[test]
fn two_of_whom_one_is_down_refuse_and_say_so() {
    let mut room = Room::new(2, 2);
    room.pass(1_000_000);
    let leader = room.leader();
    room.cut_off = vec![id(3 - leader)];
    room.submit(leader, 1);
    room.pass(1_000_000);
    room.submit(leader, 2);
    let before = room.node(leader).state().index();
    room.pass(2_000_000);
    let said = [(TxId(1), Outcome::Unknown), (TxId(2), Outcome::NoQuorum)];
    assert_eq!(room.ended, said, "the first is in a log, the second nowhere");
    assert_eq!(room.node(leader).state().index(), before);
}

#[test]
fn a_transaction_goes_to_the_next_leader_and_is_done_once() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let first = room.leader();
    let at = first % 3 + 1;
    room.cut_off = vec![id(first)];
    room.submit(at, 1);
    room.pass(850_000);
    let second = room.leader();
    assert_ne!(second, first);
    if second != at {
        assert_eq!(room.rerouted, [(TxId(1), id(first), id(second))]);
    }
    room.pass(1_000_000);
    room.cut_off.clear();
    room.pass(1_000_000);
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(room.ended.iter().filter(committed).count(), 1, "{:?}", room.ended);
    let values: Vec<_> = (1..=3).map(|number| room.node(number).state().hash()).collect();
    assert!(values.iter().all(|hash| *hash == values[0]));
}

/// A transaction that is submitted again while it is in flight, or when it is done, is the same transaction.
#[test]
fn submitting_again_is_no_second_transaction() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    for _ in 0..3 {
        room.step(leader, Input::Submit { tx_id: TxId(1), goal: add() });
    }
    room.deliver();
    room.pass(500_000);
    room.submit(leader % 3 + 1, 1);
    let outcomes: Vec<_> = room.ended.iter().map(|(_, outcome)| outcome.clone()).collect();
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0], outcomes[1]);
    assert!(matches!(&outcomes[0], Outcome::Committed { result, .. } if *result == [Some(1.into())]));
}

#[test]
fn history_that_was_tampered_with_is_refused() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.cut_off = vec![id(4)];
    room.fill(9);
    let before = room.node(4).state().index();
    room.step(1, Input::Message(id(4), Letter::Fetch { after: before, or_state: false }));
    let (_, _, history) = room.post.pop_back().unwrap();
    room.post.clear();
    let Letter::History { first, entries, rest, certificate } = history else { panic!("{history:?}") };
    let send = |room: &mut Room, entries: &[crate::Logged<KeyValue>], certificate: &crate::Certificate| {
        let (entries, rest, certificate) = (entries.to_vec(), rest.clone(), certificate.clone());
        room.step(4, Input::Message(id(1), Letter::History { first, entries, rest, certificate }));
        room.node(4).state().index()
    };

    let mut tampered = entries.clone();
    if let Some(holdoff_paxos::log::Payload::Value(value)) =
        tampered.last_mut().map(|entry| &mut entry.payload)
    {
        value.tx_id = TxId(77);
    }
    assert_eq!(send(&mut room, &tampered, &certificate), before);
    let mut few = certificate.clone();
    few.seals.truncate(1);
    few.seals.push(few.seals[0].clone());
    assert_eq!(send(&mut room, &entries, &few), before, "one voter twice is no majority");
    let mut forged = certificate.clone();
    forged.seals[0].1.0[0] ^= 1;
    forged.seals.truncate(2);
    assert_eq!(send(&mut room, &entries, &forged), before);
    assert_eq!(send(&mut room, &entries[..entries.len() - 1], &certificate), before);
    assert_eq!(send(&mut room, &entries, &certificate), certificate.head.index);
    assert_eq!(
        send(&mut room, &entries, &certificate),
        certificate.head.index,
        "stale history moves nothing"
    );
}

/// Cuts off a leader at the time at which the voter that confirmed its term restarts, while another node has long been
/// trying to lead. Returns true if the leader ever served a read by its lease while the other node already served.
fn reads_what_is_old(after_us: u64) -> bool {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let (other, voter) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    room.apart = Some((id(leader), id(other)));
    room.pass(1_000_000 + after_us);
    assert!(room.node(leader).is_ready(), "a majority hears it");
    room.cut_off = vec![id(leader)];
    room.restart(voter);
    for read in 0..100 {
        room.pass(10_000);
        let serves = room.node(other).is_ready();
        room.step(
            leader,
            Input::Read { read: ReadId(read), goal: vec![Command::Get(key(0))], how: How::Lease },
        );
        if serves && room.answered.contains(&ReadId(read)) {
            return true;
        }
    }
    assert!(!room.answered.is_empty(), "it had a lease");
    assert!(room.node(other).is_ready() || room.node(voter).is_ready());
    false
}

#[test]
fn who_restarts_lets_a_lease_run_out() {
    let offsets = || (0..40).map(|tens| tens * 10_000);
    assert!(!offsets().any(reads_what_is_old));
    assert!(Flaw::ForgetVouching.plant(|| offsets().any(reads_what_is_old)), "the case is none");
}
