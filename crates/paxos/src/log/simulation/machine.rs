//! A node on a simulated machine: it flushes its records at intervals, and holds back its outputs until then.

use std::convert::Infallible;

use holdoff_sim::kernel::{self, Around};

use super::truth::{Truth, digest};
use super::{QUIET_US, TROUBLE_US};
use crate::log::{Input, Message, Node, Options, Output, Record, Step, Store};
use crate::{Configuration, NodeId, Slot};

pub(super) type State = u64;
type StepOf = Step<Record<u64, State>, Output<u64, State>>;

const TICK_US: u64 = 20_000;
/// The maximum duration of a flush.
const FLUSH_US: u64 = 40_000;
const OPTIONS: Options =
    Options { election_us: 250_000, heartbeat_us: 60_000, batch: 8, window: 32, undecided: 64, early: false };
/// The maximum number of applied entries before the node compacts its log.
const KEPT: u64 = 20;

pub(super) struct Machine {
    pub(super) node: Node<u64, State>,
    pub(super) applied: (Slot, State),
    /// Steps that wait for the flush.
    pending: Vec<StepOf>,
    led: bool,
}

#[derive(Default)]
pub(super) struct Disk {
    store: Option<Store<u64, State>>,
    /// The number of unflushed records. A crash loses them; the next incarnation adds them to the statistics.
    unflushed: usize,
    /// The number of unflushed entries that others have already received.
    pub(super) overtaken: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Timer {
    Tick,
    Flush,
}

pub(super) fn name(node: kernel::NodeId) -> NodeId {
    NodeId(u128::from(node) + 1)
}

fn number(node: NodeId) -> kernel::NodeId {
    u32::try_from(node.0 - 1).unwrap()
}

impl kernel::Node for Machine {
    type Message = Message<u64, State>;
    type Timer = Timer;
    type Disk = Disk;

    fn start(disk: &mut Disk, around: &mut Around<'_, Self>) -> Self {
        Truth::with(|truth| {
            truth.ran.unstored += std::mem::take(&mut disk.unflushed) as u64;
            truth.ran.overtaken += std::mem::take(&mut disk.overtaken);
        });
        let voters = (0..around.nodes().min(3)).map(name);
        let new = || Store::new(Configuration::new(voters).unwrap(), 0);
        let store = disk.store.get_or_insert_with(new).clone();
        let applied = (store.snapshot().last.slot, store.snapshot().state);
        let (now_us, roll) = (around.now_us(), around.chance().roll());
        let options = Options { early: Truth::with(|truth| truth.early), ..OPTIONS };
        let node = Node::new(name(around.me()), options, store, now_us, roll);
        let first_us = around.chance().between(1, TICK_US);
        around.remind(first_us, Timer::Tick);
        let mut machine = Self { node, applied, pending: Vec::new(), led: false };
        machine.apply(machine.node.store().decided());
        machine
    }

    fn receive(&mut self, disk: &mut Disk, from: u32, message: Self::Message, around: &mut Around<'_, Self>) {
        self.step(disk, Input::Message(name(from), message), around);
    }

    fn wake(&mut self, disk: &mut Disk, timer: Timer, around: &mut Around<'_, Self>) {
        match timer {
            Timer::Flush => self.flush(disk, around),
            Timer::Tick => {
                around.remind(TICK_US, Timer::Tick);
                self.step(disk, Input::Tick, around);
                self.want(disk, around);
            }
        }
    }
}

impl Machine {
    fn step(&mut self, disk: &mut Disk, input: Input<u64, State>, around: &mut Around<'_, Self>) {
        let roll = around.chance().roll();
        let mut step = self.node.step(around.now_us(), roll, input);
        self.send_early(disk, &mut step, around);
        if self.pending.is_empty() {
            let after_us = around.chance().between(500, FLUSH_US);
            around.remind(after_us, Timer::Flush);
        }
        disk.unflushed += step.record().map_or(0, Vec::len);
        self.pending.push(step);
        let leads = self.node.leads();
        if let Some(term) = leads.filter(|_| !self.led) {
            Truth::with(|truth| truth.leads(term, &self.node));
        }
        self.led = leads.is_some();
    }

    /// Sends the early messages. They may overtake only unflushed entries of the leader's own term.
    fn send_early(&mut self, disk: &mut Disk, step: &mut StepOf, around: &mut Around<'_, Self>) {
        for output in step.early() {
            let Output::Send(to, message) = output else { panic!("{output:?} is no message") };
            let Message::Append(append) = &message else { panic!("{message:?} is early") };
            let unflushed = self.pending.iter().chain([&*step]).filter_map(Step::record).flatten();
            let is_term = |record: &Record<u64, State>| match record {
                Record::Entry { entry, .. } => entry.term != append.term,
                Record::Promised(_) | Record::Accepted { .. } => true,
                Record::Decided(_) | Record::Snapshot(_) => false,
            };
            if let Some(record) = unflushed.clone().find(|record| is_term(record)) {
                Truth::with(|truth| truth.breaks(format!("{append:?} overtakes {record:?}")));
            }
            disk.overtaken +=
                unflushed.filter(|record| matches!(record, Record::Entry { .. })).count() as u64;
            around.send(number(to), message);
        }
    }

    /// Plays the clients and the operator: proposals, changes, transfers, hints and compaction.
    fn want(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let now_us = around.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        if self.node.leads().is_some() && now_us < QUIET_US {
            for _ in 0..around.chance().between(0, 3) {
                let value = Truth::with(Truth::new_value);
                self.step(disk, Input::Propose(value), around);
            }
            if Truth::with(|truth| truth.may_change) && around.chance().happens(0.03) {
                self.change(disk, around);
            }
            if now_us < TROUBLE_US && around.chance().happens(0.01) {
                let last = u64::from(around.nodes() - 1);
                let to = name(u32::try_from(around.chance().between(0, last)).unwrap());
                self.step(disk, Input::HandOver(to), around);
            }
        }
        if now_us < TROUBLE_US && around.chance().happens(0.01) {
            self.step(disk, Input::Run, around);
        }
        let (through, state) = self.applied;
        if through.0 > self.node.store().snapshot().last.slot.0 + KEPT {
            self.step(disk, Input::Compact { through, state }, around);
        }
    }

    /// Adds or removes a voter. At least three voters remain.
    fn change(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let last = u64::from(around.nodes() - 1);
        let one = name(u32::try_from(around.chance().between(0, last)).unwrap());
        let now = self.node.store().configuration();
        let without = now.acceptors().iter().copied().filter(|node| *node != one);
        let to: Vec<_> = if now.contains(one) { without.collect() } else { without.chain([one]).collect() };
        if to.len() >= 3 {
            self.step(disk, Input::Change(Configuration::new(to).unwrap()), around);
        }
    }

    /// Stores the pending records, in order, and performs the released outputs.
    fn flush(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let pending = std::mem::take(&mut self.pending);
        (disk.unflushed, disk.overtaken) = (0, 0);
        let me = name(around.me());
        let stored = Step::release_all(pending, |records: Vec<Vec<Record<u64, State>>>| {
            if let Some(store) = &mut disk.store {
                for record in records.into_iter().flatten() {
                    Truth::with(|truth| truth.stored(me, &record));
                    store.apply(record);
                }
            }
            Ok::<_, Infallible>(())
        });
        for output in stored.unwrap().into_iter().flatten() {
            match output {
                Output::Send(to, message) => around.send(number(to), message),
                Output::Decided(slot) => self.apply(slot),
                Output::Installed(slot) => {
                    Truth::with(|truth| truth.ran.installed += 1);
                    self.apply(slot);
                }
                Output::Proposed(..) => Truth::with(|truth| truth.ran.proposed += 1),
                Output::NotTaken(_) => Truth::with(|truth| truth.ran.not_taken += 1),
                Output::Stored { term, slot } => self.step(disk, Input::Stored { term, slot }, around),
                Output::HandedOver(_) => Truth::with(|truth| truth.ran.handed_over += 1),
                Output::NotHandedOver(_) => Truth::with(|truth| truth.ran.not_handed_over += 1),
            }
        }
    }

    /// Applies the decided entries in order, each once, up to the slot whose decision was released after storing.
    fn apply(&mut self, through: Slot) {
        let store = self.node.store();
        let base = store.snapshot();
        if base.last.slot > self.applied.0 {
            self.applied = (base.last.slot, base.state);
            Truth::with(|truth| truth.stands_at(self.applied));
        }
        while self.applied.0 < through {
            let slot = self.applied.0.next();
            let entry = store.entry(slot).unwrap();
            Truth::with(|truth| truth.decided(slot, entry, store.promised()));
            self.applied = (slot, digest(self.applied.1, entry));
            Truth::with(|truth| truth.stands_at(self.applied));
        }
    }
}
