//! A node on a simulated machine: it flushes its records at intervals, and holds back its outputs until then.

use std::convert::Infallible;

use holdoff_sim::kernel::{self, NodeContext};

use super::oracle::{Oracle, digest};
use super::{FAULTS_US, QUIET_US};
use crate::log::faults;
use crate::log::{Input, Message, Node, Options, Output, Record, StepOutput, Store};
use crate::{Configuration, NodeId, Slot};

pub(super) type State = u64;
type StepOf = StepOutput<Record<u64, State>, Output<u64, State>>;

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

impl kernel::SimNode for Machine {
    type Message = Message<u64, State>;
    type Timer = Timer;
    type Disk = Disk;

    fn start(disk: &mut Disk, context: &mut NodeContext<'_, Self>) -> Self {
        Oracle::with(|oracle| {
            oracle.ran.unstored += std::mem::take(&mut disk.unflushed) as u64;
            oracle.ran.overtaken += std::mem::take(&mut disk.overtaken);
        });
        let new = || Store::new(Oracle::with(|oracle| oracle.plan.first_voters()), 0);
        let store = disk.store.get_or_insert_with(new).clone();
        let applied = (store.snapshot().last.slot, store.snapshot().state);
        let (now_us, roll) = (context.now_us(), context.rng().roll());
        let options = Options { early: Oracle::with(|oracle| oracle.plan.early), ..OPTIONS };
        let node = Node::new(name(context.me()), options, store, now_us, roll);
        let first_us = context.rng().between(1, TICK_US);
        context.set_timer(first_us, Timer::Tick);
        let mut machine = Self { node, applied, pending: Vec::new(), led: false };
        machine.apply(machine.node.store().decided());
        machine
    }

    fn receive(
        &mut self,
        disk: &mut Disk,
        from: u32,
        message: Self::Message,
        context: &mut NodeContext<'_, Self>,
    ) {
        Oracle::with(|oracle| oracle.now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US));
        self.step(disk, Input::Message(name(from), message), context);
    }

    fn wake(&mut self, disk: &mut Disk, timer: Timer, context: &mut NodeContext<'_, Self>) {
        Oracle::with(|oracle| oracle.now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US));
        match timer {
            Timer::Flush => self.flush(disk, context),
            Timer::Tick => {
                context.set_timer(TICK_US, Timer::Tick);
                self.step(disk, Input::Tick, context);
                self.submit_requests(disk, context);
            }
        }
    }
}

impl Machine {
    fn step(&mut self, disk: &mut Disk, input: Input<u64, State>, context: &mut NodeContext<'_, Self>) {
        let roll = context.rng().roll();
        for step in faults::step(&mut self.node, context.now_us(), roll, input) {
            self.finish(disk, step, context);
        }
    }

    fn finish(&mut self, disk: &mut Disk, mut step: StepOf, context: &mut NodeContext<'_, Self>) {
        self.send_early(disk, &mut step, context);
        if self.pending.is_empty() {
            let after_us = context.rng().between(500, FLUSH_US);
            context.set_timer(after_us, Timer::Flush);
        }
        disk.unflushed += step.record().map_or(0, Vec::len);
        self.pending.push(step);
        let leads = self.node.leads();
        if let Some(term) = leads.filter(|_| !self.led) {
            Oracle::with(|oracle| oracle.leads(term, &self.node));
        }
        self.led = leads.is_some();
    }

    /// Sends the early messages. They may overtake only unflushed entries of the leader's own term.
    fn send_early(&mut self, disk: &mut Disk, step: &mut StepOf, context: &mut NodeContext<'_, Self>) {
        for output in step.early() {
            let Output::Send(to, message) = output else { panic!("{output:?} is no message") };
            let Message::Append(append) = &message else { panic!("{message:?} is early") };
            let unflushed = self.pending.iter().chain([&*step]).filter_map(StepOutput::record).flatten();
            let is_term = |record: &Record<u64, State>| match record {
                Record::Entry { entry, .. } => entry.term != append.term,
                Record::Promised(_) | Record::Accepted { .. } => true,
                Record::Decided(_) | Record::Snapshot(_) => false,
            };
            if let Some(record) = unflushed.clone().find(|record| is_term(record)) {
                Oracle::with(|oracle| oracle.fail(format!("{append:?} overtakes {record:?}")));
            }
            disk.overtaken +=
                unflushed.filter(|record| matches!(record, Record::Entry { .. })).count() as u64;
            context.send(number(to), message);
        }
    }

    /// Plays the clients and the operator: proposals, changes, transfers, hints and compaction.
    fn submit_requests(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        let now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        if self.node.leads().is_some() && now_us < QUIET_US {
            for _ in 0..context.rng().between(0, 3) {
                let value = Oracle::with(Oracle::new_value);
                self.step(disk, Input::Propose(value), context);
            }
            if Oracle::with(|oracle| oracle.plan.may_change) && context.rng().happens(0.03) {
                self.change(disk, context);
            }
            if now_us < FAULTS_US && context.rng().happens(0.01) {
                let last = u64::from(context.nodes() - 1);
                let to = name(u32::try_from(context.rng().between(0, last)).unwrap());
                self.step(disk, Input::TransferLeadership(to), context);
            }
        }
        if now_us < FAULTS_US && context.rng().happens(0.01) {
            self.step(disk, Input::Campaign, context);
        }
        self.learn(disk, context);
        let (through, state) = self.applied;
        if through.0 > self.node.store().snapshot().last.slot.0 + KEPT {
            self.step(disk, Input::Compact { through, state }, context);
        }
    }

    /// Plays a peer with a proof: it sends decided entries, or a snapshot to a node that is far behind.
    fn learn(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        if !Oracle::with(|oracle| oracle.plan.may_learn) || !context.rng().happens(0.02) {
            return;
        }
        let decided = self.node.store().decided();
        let last = Oracle::with(|oracle| oracle.last_decided());
        if last.0 > decided.0 + KEPT && context.rng().happens(0.5) {
            let slot = Slot(context.rng().between(decided.0 + 1, last.0));
            if let Some(snapshot) = Oracle::with(|oracle| oracle.snapshot_at(slot)) {
                Oracle::with(|oracle| oracle.ran.restored += 1);
                self.step(disk, Input::RestoreSnapshot(snapshot), context);
            }
            return;
        }
        let limit = usize::try_from(context.rng().between(1, 8)).unwrap();
        let entries = Oracle::with(|oracle| oracle.entries_after(decided, limit));
        if !entries.is_empty() {
            Oracle::with(|oracle| oracle.ran.learned += 1);
            self.step(disk, Input::Learn { first: decided.next(), entries }, context);
        }
    }

    /// Adds or removes a voter. At least three voters remain.
    fn change(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        let last = u64::from(context.nodes() - 1);
        let one = name(u32::try_from(context.rng().between(0, last)).unwrap());
        let now = self.node.store().configuration();
        let without = now.acceptors().iter().copied().filter(|node| *node != one);
        let to: Vec<_> = if now.contains(one) { without.collect() } else { without.chain([one]).collect() };
        if to.len() >= 3 {
            self.step(disk, Input::ChangeConfiguration(Configuration::new(to).unwrap()), context);
        }
    }

    /// Stores the pending records, in order, and performs the released outputs.
    fn flush(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        let pending = std::mem::take(&mut self.pending);
        (disk.unflushed, disk.overtaken) = (0, 0);
        let me = name(context.me());
        let stored = StepOutput::release_all(pending, |records: Vec<Vec<Record<u64, State>>>| {
            if let Some(store) = &mut disk.store {
                for record in records.into_iter().flatten() {
                    Oracle::with(|oracle| oracle.stored(me, &record));
                    store.apply(record);
                }
            }
            Ok::<_, Infallible>(())
        });
        for output in stored.unwrap().into_iter().flatten() {
            match output {
                Output::Send(to, message) => context.send(number(to), message),
                Output::Decided(slot) => self.apply(slot),
                Output::Installed(slot) => {
                    Oracle::with(|oracle| oracle.ran.installed += 1);
                    self.apply(slot);
                }
                Output::Proposed(..) => Oracle::with(|oracle| oracle.ran.proposed += 1),
                Output::ProposalRejected(_) => Oracle::with(|oracle| oracle.ran.rejected += 1),
                Output::Stored { term, slot } => self.step(disk, Input::Stored { term, slot }, context),
                Output::LeadershipTransferred(_) => Oracle::with(|oracle| oracle.ran.transferred += 1),
                Output::TransferFailed(_) => Oracle::with(|oracle| oracle.ran.failed_transfers += 1),
            }
        }
    }

    /// Applies the decided entries in order, each once, up to the slot whose decision was released after storing.
    fn apply(&mut self, through: Slot) {
        let store = self.node.store();
        let base = store.snapshot();
        if base.last.slot > self.applied.0 {
            self.applied = (base.last.slot, base.state);
            Oracle::with(|oracle| oracle.check_state(self.applied));
        }
        while self.applied.0 < through {
            let slot = self.applied.0.next();
            let entry = store.entry(slot).unwrap();
            Oracle::with(|oracle| oracle.decided(slot, entry, store.promised()));
            self.applied = (slot, digest(self.applied.1, entry));
            Oracle::with(|oracle| oracle.check_state(self.applied));
        }
    }
}
