//! A node on a simulated machine: it flushes its records from time to time, and sends no dependent message before.

use std::convert::Infallible;
use std::time::Duration;

use holdoff_paxos::log::{self, Payload};
use holdoff_paxos::{Configuration, NodeId, Slot};
use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_sim::kernel::{self, Around, Chance};

use super::QUIET_US;
use super::notary::Clerk;
use super::truth::Truth;
use crate::machine::{Command, Commands, Key, KeyValue, Values};
use crate::{
    Checkpoint, How, Input, Ledger, Letter, LetterOf, Options, Outcome, Output, OutputOf, Record, Step,
    Store, TxId, join,
};

const TICK_US: u64 = 20_000;
/// The maximum duration of a flush.
const FLUSH_US: u64 = 60_000;

pub(super) type Post = LetterOf<KeyValue>;

pub(super) struct Machine {
    pub(super) ledger: Ledger<KeyValue, Clerk>,
    me: NodeId,
    /// The steps that wait for a flush before their outputs are performed.
    pending: Vec<Step<KeyValue>>,
}

#[derive(Default)]
pub(super) struct Disk {
    store: Option<Store<KeyValue>>,
    unflushed: Vec<Record<KeyValue>>,
    /// The last index that the node has sent to other nodes without a flush.
    pub(super) ahead: Option<Slot>,
    /// The number of times that the disk was lost. A node that returns without its disk has another id.
    lost: u32,
    node: Option<u32>,
}

#[derive(Clone, Copy)]
pub(super) enum Timer {
    Tick,
    Flush,
}

pub(super) fn name(node: kernel::NodeId, lost: u32) -> NodeId {
    NodeId(u128::from(lost) << 32 | (u128::from(node) + 1))
}

fn number(node: NodeId) -> kernel::NodeId {
    u32::try_from((node.0 & 0xFFFF_FFFF) - 1).unwrap()
}

pub(super) fn options() -> Options {
    let growth = Growth::exponential(Duration::from_millis(50), 2.0);
    let fetching = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_millis(300));
    Options {
        // The limit of undecided entries is hardly larger than `kept`, so that the check can inspect all entries that
        // are decided at once.
        log: log::Options {
            election_us: 250_000,
            heartbeat_us: 60_000,
            batch: 8,
            window: 32,
            undecided: 32,
            early: false,
        },
        result_us: 900_000,
        resend_us: 200_000,
        fetching: fetching.attempts(u32::MAX).build().unwrap(),
        pending: 64,
        kept: 20,
        batch: 16,
        lease_us: 200_000,
        drift_ppm: 50_000,
    }
}

impl kernel::Node for Machine {
    type Message = (NodeId, NodeId, Post);
    type Timer = Timer;
    type Disk = Disk;

    fn start(disk: &mut Disk, around: &mut Around<'_, Self>) -> Self {
        disk.node = Some(around.me());
        let voters = Configuration::new((0..around.nodes().min(3)).map(|node| name(node, 0))).unwrap();
        let store = disk.store.get_or_insert_with(|| Ledger::<KeyValue, Clerk>::empty(voters)).clone();
        let me = name(around.me(), disk.lost);
        let (now_us, roll) = (around.now_us(), around.chance().roll());
        let mut options = options();
        options.log.early = Truth::with(|truth| truth.plan.early);
        let ledger = Ledger::new(me, options, Clerk(me), store, now_us, roll).unwrap();
        let first_us = around.chance().between(1, TICK_US);
        around.remind(first_us, Timer::Tick);
        Self { ledger, me, pending: Vec::new() }
    }

    fn receive(&mut self, disk: &mut Disk, _: u32, sent: Self::Message, around: &mut Around<'_, Self>) {
        let (from, to, letter) = sent;
        if to == self.me {
            let installs = matches!(letter, Letter::Log(log::Message::Install { .. }));
            Truth::with(|truth| truth.count("snapshot sent", u64::from(installs)));
            self.step(disk, Input::Message(from, letter), around);
        }
    }

    fn wake(&mut self, disk: &mut Disk, timer: Timer, around: &mut Around<'_, Self>) {
        match timer {
            Timer::Flush => self.flush(disk, around),
            Timer::Tick => {
                around.remind(TICK_US, Timer::Tick);
                self.step(disk, Input::Tick, around);
                self.want(disk, around);
                self.operate(disk, around);
            }
        }
    }

    /// Keeps a part of the unflushed records, or loses the whole disk.
    fn crash(disk: &mut Disk, chance: &mut Chance) {
        let unflushed = std::mem::take(&mut disk.unflushed);
        let kept = chance.between(0, unflushed.len() as u64);
        let tears = kept < unflushed.len() as u64;
        let id = name(disk.node.unwrap_or_default(), disk.lost);
        let ahead = disk.ahead.take();
        let lost = unflushed.iter().skip(usize::try_from(kept).unwrap());
        let was_sent = |record: &Record<KeyValue>| match record {
            log::Record::Entry { slot, .. } => Some(*slot) <= ahead,
            _ => false,
        };
        let is_ahead = lost.into_iter().any(was_sent);
        Truth::with(|truth| truth.count("ahead of its disk", u64::from(is_ahead)));
        if let Some(store) = &mut disk.store {
            for record in unflushed.into_iter().take(usize::try_from(kept).unwrap()) {
                Truth::with(|truth| truth.stored(id, &record));
                store.apply(record);
            }
        }
        Truth::with(|truth| truth.count("torn tail", u64::from(tears)));
        if Truth::with(|truth| truth.may_wipe(id)) {
            disk.store = None;
            disk.lost += 1;
        }
    }
}

impl Machine {
    pub(super) fn step(&mut self, disk: &mut Disk, input: Input<KeyValue>, around: &mut Around<'_, Self>) {
        let roll = around.chance().roll();
        let before = *self.ledger.counts();
        let mut step = self.ledger.step(around.now_us(), roll, input);
        self.count(before);
        let early = step.early();
        if self.pending.is_empty() {
            let after_us = around.chance().between(500, FLUSH_US);
            around.remind(after_us, Timer::Flush);
        }
        for record in step.record().into_iter().flatten() {
            Truth::with(|truth| truth.logged(record));
            disk.unflushed.push(record.clone());
        }
        self.pending.push(step);
        self.send_early(disk, early, around);
        Truth::with(|truth| truth.look_at(self.me, &self.ledger));
    }

    /// Sends the outputs that need not wait for the disk.
    fn send_early(&self, disk: &mut Disk, early: Vec<OutputOf<KeyValue>>, around: &mut Around<'_, Self>) {
        for output in early {
            let Output::Send(to, letter) = output else { panic!("{output:?} is no message") };
            let Letter::Log(log::Message::Append(append)) = &letter else { panic!("{letter:?} is early") };
            let entries = append.more.len() as u64 + u64::from(append.entry.is_some());
            disk.ahead = disk.ahead.max(Some(Slot(append.before.slot.0 + entries)));
            around.send(number(to), (self.me, to, letter));
        }
    }

    fn count(&self, before: crate::Counts) {
        let now = self.ledger.counts();
        Truth::with(|truth| {
            truth.count("history fetched", now.fetched - before.fetched);
            truth.count("state fetched", now.states - before.states);
            truth.count("refused", now.refused - before.refused);
        });
    }

    /// Submits the requests of clients, at any node.
    fn want(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let now_us = around.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        if now_us >= QUIET_US {
            return;
        }
        if around.chance().happens(0.3) {
            let tx_id = Truth::with(Truth::new_tx);
            let goal = some_goal(around.chance());
            self.step(disk, Input::Submit { tx_id, goal }, around);
        }
        if around.chance().happens(0.1) {
            let how = *[How::Local, How::Quorum, How::Lease, How::Lease]
                .get(usize::try_from(around.chance().between(0, 3)).unwrap())
                .unwrap();
            let read = Truth::with(|truth| truth.new_read(how));
            self.step(disk, Input::Read { read, goal: vec![Command::Get(key(0))], how }, around);
        }
        if Truth::with(|truth| !truth.is_healed) && around.chance().happens(0.02) {
            Truth::with(|truth| truth.count("false hints", 1));
            let anybody = name(u32::try_from(around.chance().between(0, 7)).unwrap(), 0);
            self.step(disk, Input::ShouldLead(anybody), around);
        }
        if Truth::with(|truth| !truth.is_healed) && around.chance().happens(0.03) {
            let last = u64::from(around.nodes() - 1);
            let to = name(u32::try_from(around.chance().between(0, last)).unwrap(), 0);
            self.step(disk, Input::HandOver(to), around);
        }
    }

    /// Acts as the operator: removes a voter that has lost its disk, adds it under its new id, and adds and removes
    /// other voters.
    fn operate(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        if !self.ledger.is_ready() {
            return;
        }
        let now = self.ledger.state().voters().clone();
        let replaced = Truth::with(|truth| truth.wiped);
        let to: Vec<_> = match replaced {
            Some(old) if now.contains(old) => {
                now.acceptors().iter().copied().filter(|node| *node != old).collect()
            }
            Some(old) if !now.contains(name(number(old), 1)) && now.acceptors().len() < 3 => {
                now.acceptors().iter().copied().chain([name(number(old), 1)]).collect()
            }
            _ if Truth::with(|truth| truth.may_change()) && around.chance().happens(0.01) => {
                let last = u64::from(around.nodes() - 1);
                let node = u32::try_from(around.chance().between(0, last)).unwrap();
                let lost = u32::from(replaced.is_some_and(|old| number(old) == node));
                let one = name(node, lost);
                let without = now.acceptors().iter().copied().filter(|node| *node != one);
                let to: Vec<_> =
                    if now.contains(one) { without.collect() } else { without.chain([one]).collect() };
                if to.len() < 3 {
                    return;
                }
                to
            }
            _ => return,
        };
        self.step(disk, Input::Change(Configuration::new(to).unwrap()), around);
    }

    /// Stores the waiting records in order, and then performs the outputs.
    fn flush(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let pending = std::mem::take(&mut self.pending);
        disk.unflushed.clear();
        disk.ahead = None;
        let me = self.me;
        let stored = Step::<KeyValue>::release_all(pending, |records: Vec<Vec<Record<KeyValue>>>| {
            for record in records.into_iter().flatten() {
                Truth::with(|truth| truth.stored(me, &record));
                if let Some(store) = &mut disk.store {
                    store.apply(record);
                }
            }
            Ok::<_, Infallible>(())
        });
        let mut outputs = stored.unwrap().into_iter().flatten().collect();
        join(&mut outputs, options().log.batch);
        for output in outputs {
            match output {
                Output::Send(to, letter) => {
                    let letter = if Truth::with(|truth| !truth.is_healed) && around.chance().happens(0.2) {
                        tampered(letter)
                    } else {
                        letter
                    };
                    around.send(number(to), (me, to, letter));
                }
                Output::Ended(tx_id, outcome) => self.ended(disk, tx_id, &outcome, around),
                Output::Rerouted { .. } => Truth::with(|truth| truth.count("rerouted", 1)),
                Output::Answered { read, index, .. } => Truth::with(|truth| truth.answered(read, index)),
                Output::Stored { term, slot } => self.step(disk, Input::Stored { term, slot }, around),
                Output::HandedOver(_) => Truth::with(|truth| truth.count("handed over", 1)),
                Output::NotHandedOver(_) => Truth::with(|truth| truth.count("not handed over", 1)),
                Output::NotAnswered(..) => Truth::with(|truth| truth.count("reads not answered", 1)),
                Output::Changed(to, slot) => Truth::with(|truth| truth.changed(&to, slot)),
                Output::NotChanged(_, why) => Truth::with(|truth| truth.not_changed(why)),
                Output::Torn(tear) => {
                    Truth::with(|truth| truth.breaks(format!("{me:?} has stopped: {tear}")));
                }
            }
        }
    }

    /// Submits a transaction that ended as `Unknown` again, under the same id.
    fn ended(
        &mut self,
        disk: &mut Disk,
        tx_id: TxId,
        outcome: &Outcome<Values>,
        around: &mut Around<'_, Self>,
    ) {
        let healed_us = around.now_us().saturating_sub(kernel::Skew::EPOCH_US + super::TROUBLE_US);
        let is_late = *outcome == Outcome::Unknown && healed_us > 2 * options().result_us;
        Truth::with(|truth| truth.count("unknown after healing", u64::from(is_late)));
        Truth::with(|truth| truth.ended(tx_id, outcome));
        if *outcome == Outcome::Unknown && around.chance().happens(0.7) {
            let goal = some_goal(around.chance());
            self.step(disk, Input::Submit { tx_id, goal }, around);
        }
    }
}

pub(super) fn key(number: u64) -> Key {
    Key::new(format!("k{number}")).unwrap()
}

pub(super) fn some_goal(chance: &mut Chance) -> Commands {
    let some_key = |chance: &mut Chance| key(chance.between(0, 3));
    let add = Command::Increment(some_key(chance), i64::try_from(chance.between(1, 9)).unwrap());
    if chance.happens(0.3) {
        // Most often another transaction has changed the value: then the first command must leave no change.
        let expected = Some(i64::try_from(chance.between(0, 20)).unwrap().into());
        return vec![add, Command::CompareAndSet { key: some_key(chance), expected, new: None }];
    }
    vec![add]
}

/// Replaces the diff of an entry with an empty one and adjusts its state hash, so that only the certificate reveals
/// it.
fn tampered(letter: Post) -> Post {
    let (first, mut entries, rest, certificate) = match letter {
        Letter::History { first, entries, rest, certificate } => (first, entries, rest, certificate),
        Letter::State(snapshot) => return tampered_state(snapshot),
        letter => return letter,
    };
    let mut before = None;
    for entry in &mut entries {
        let Payload::Value(value) = &mut entry.payload else { continue };
        if let Some(before) = before.filter(|_| !value.diff.is_empty()) {
            (value.diff, value.state_hash) = (crate::machine::Diff::default(), before);
            Truth::with(|truth| truth.count("tampered history", 1));
            break;
        }
        before = Some(value.state_hash);
    }
    Letter::History { first, entries, rest, certificate }
}

/// Removes a remembered transaction from a state: a node that adopted the state would execute that transaction twice.
fn tampered_state(mut snapshot: log::Snapshot<Checkpoint<Values>>) -> Post {
    if snapshot.state.done.pop().is_some() {
        Truth::with(|truth| truth.count("tampered state", 1));
    }
    Letter::State(snapshot)
}
