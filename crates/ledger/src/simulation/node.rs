//! A node on a simulated machine: it flushes its records from time to time, and sends no dependent message before.

use std::convert::Infallible;
use std::time::Duration;

use holdoff_paxos::log::{self, EntryPayload};
use holdoff_paxos::{Configuration, NodeId, Slot};
use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_sim::kernel::{self, NodeContext, SimRng};
use holdoff_testbed::fault::is_injected;

use super::QUIET_US;
use super::oracle::Oracle;
use crate::ledger::faulty::{FaultyLedger, LedgerFault};
use crate::machine::{Command, Commands, Key, KeyValue, Values};
use crate::{
    Checkpoint, Consistency, DedupLimits, Hash, HeadSignature, Input, Ledger, LedgerStep, Message, MessageOf,
    Notary, Options, Outcome, Output, OutputOf, Record, Store, TxId, TxKey, coalesce_appends,
};

const TICK_US: u64 = 20_000;
/// The maximum duration of a flush.
const FLUSH_US: u64 = 60_000;

pub(super) type TestMessage = MessageOf<KeyValue>;

pub(super) struct SimulatedNode {
    pub(super) ledger: FaultyLedger<KeyValue, TestNotary>,
    me: NodeId,
    /// The steps that wait for a flush before their outputs are performed.
    pending: Vec<LedgerStep<KeyValue>>,
    /// The last term of which this node has stored entries as the leader.
    stored: Option<log::Term>,
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
        // At the rate of the simulation the window covers a few hundred milliseconds: less than a stall.
        dedup: DedupLimits { transactions: 24, bytes: 1 << 20 },
        batch: 16,
        lease_us: 200_000,
        drift_ppm: 50_000,
    }
}

impl kernel::SimNode for SimulatedNode {
    type Message = (NodeId, NodeId, TestMessage);
    type Timer = Timer;
    type Disk = Disk;

    fn start(disk: &mut Disk, context: &mut NodeContext<'_, Self>) -> Self {
        disk.node = Some(context.me());
        let voters = Oracle::with(|oracle| oracle.plan.first_voters());
        let store = disk.store.get_or_insert_with(|| Ledger::<KeyValue, TestNotary>::empty(voters)).clone();
        let me = name(context.me(), disk.lost);
        let (now_us, roll) = (context.now_us(), context.rng().roll());
        let mut options = options();
        options.log.early = Oracle::with(|oracle| oracle.plan.early);
        let ledger = FaultyLedger::new(me, options, TestNotary(me), store, now_us, roll).unwrap();
        let first_us = context.rng().between(1, TICK_US);
        context.set_timer(first_us, Timer::Tick);
        Self { ledger, me, pending: Vec::new(), stored: None }
    }

    fn receive(&mut self, disk: &mut Disk, _: u32, sent: Self::Message, context: &mut NodeContext<'_, Self>) {
        let (from, to, message) = sent;
        if to == self.me {
            let installs = matches!(message, Message::Log(log::Message::InstallSnapshot { .. }));
            Oracle::with(|oracle| oracle.count("snapshot sent", u64::from(installs)));
            self.step(disk, Input::Message(from, message), context);
        }
    }

    fn wake(&mut self, disk: &mut Disk, timer: Timer, context: &mut NodeContext<'_, Self>) {
        match timer {
            Timer::Flush => self.flush(disk, context),
            Timer::Tick => {
                context.set_timer(TICK_US, Timer::Tick);
                self.step(disk, Input::Tick, context);
                self.submit_requests(disk, context);
                self.operate(disk, context);
            }
        }
    }

    /// Keeps a part of the unflushed records, or loses the whole disk.
    fn crash(disk: &mut Disk, rng: &mut SimRng) {
        let unflushed = std::mem::take(&mut disk.unflushed);
        let kept = rng.between(0, unflushed.len() as u64);
        let tears = kept < unflushed.len() as u64;
        let id = name(disk.node.unwrap_or_default(), disk.lost);
        let ahead = disk.ahead.take();
        let lost = unflushed.iter().skip(usize::try_from(kept).unwrap());
        let was_sent = |record: &Record<KeyValue>| match record {
            log::Record::Entry { slot, .. } => Some(*slot) <= ahead,
            _ => false,
        };
        let is_ahead = lost.into_iter().any(was_sent);
        Oracle::with(|oracle| oracle.count("ahead of its disk", u64::from(is_ahead)));
        if let Some(store) = &mut disk.store {
            for record in unflushed.into_iter().take(usize::try_from(kept).unwrap()) {
                Oracle::with(|oracle| oracle.stored(id, &record));
                store.apply(record);
            }
        }
        Oracle::with(|oracle| oracle.count("torn tail", u64::from(tears)));
        if Oracle::with(|oracle| oracle.may_wipe(id)) {
            disk.store = None;
            disk.lost += 1;
        }
    }
}

impl SimulatedNode {
    pub(super) fn step(
        &mut self,
        disk: &mut Disk,
        input: Input<KeyValue>,
        context: &mut NodeContext<'_, Self>,
    ) {
        let roll = context.rng().roll();
        let (before, last) = (*self.ledger.counts(), self.ledger.store().last());
        let mut step = self.ledger.step(context.now_us(), roll, input);
        self.count(before);
        let early = step.early();
        if self.pending.is_empty() {
            let now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US);
            let after_us = flush_time_us(now_us, context.rng());
            context.set_timer(after_us, Timer::Flush);
        }
        for record in step.record().into_iter().flatten() {
            Oracle::with(|oracle| oracle.logged(record));
            disk.unflushed.push(record.clone());
        }
        self.pending.push(step);
        self.send_early(disk, early, context);
        Oracle::with(|oracle| oracle.look_at(self.me, &self.ledger));
        self.count_unstored(disk, last, context);
    }

    /// Reports the entries after this slot as stored before they are, if that fault is injected. The node is past the
    /// first write of its term.
    fn count_unstored(&mut self, disk: &mut Disk, last: Slot, context: &mut NodeContext<'_, Self>) {
        let slot = self.ledger.store().last();
        let is_new = slot > last && is_injected(LedgerFault::CountUnstored);
        if let Some(term) = self.ledger.leads().filter(|term| is_new && self.stored == Some(*term)) {
            self.step(disk, Input::Stored { term, slot }, context);
        }
    }

    /// Sends the outputs that need not wait for the disk.
    fn send_early(
        &self,
        disk: &mut Disk,
        early: Vec<OutputOf<KeyValue>>,
        context: &mut NodeContext<'_, Self>,
    ) {
        for output in early {
            let Output::Send(to, message) = output else { panic!("{output:?} is not a message") };
            let Message::Log(log::Message::Append(append)) = &message else {
                panic!("unexpected early message {message:?}")
            };
            let entries = append.more.len() as u64 + u64::from(append.entry.is_some());
            disk.ahead = disk.ahead.max(Some(Slot(append.before.slot.0 + entries)));
            context.send(number(to), (self.me, to, message));
        }
    }

    fn count(&self, before: crate::LedgerCounters) {
        let now = self.ledger.counts();
        Oracle::with(|oracle| {
            oracle.count("history fetched", now.fetched - before.fetched);
            oracle.count("state fetched", now.states - before.states);
            oracle.count("refused", now.refused - before.refused);
        });
    }

    /// Submits the requests of clients, at any node.
    fn submit_requests(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        let now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        if now_us >= QUIET_US {
            return;
        }
        if context.rng().happens(0.3) {
            let id = Oracle::with(Oracle::new_tx);
            let tx = TxKey { id, birth: self.ledger.state().index() };
            self.submit(disk, tx, context);
        }
        if context.rng().happens(0.05)
            && let Some(tx) = Oracle::with(Oracle::take_unknown)
        {
            Oracle::with(|oracle| oracle.count("submitted again later", 1));
            self.submit(disk, tx, context);
        }
        if context.rng().happens(0.1) {
            let consistency =
                *[Consistency::Local, Consistency::Quorum, Consistency::Lease, Consistency::Lease]
                    .get(usize::try_from(context.rng().between(0, 3)).unwrap())
                    .unwrap();
            let read = Oracle::with(|oracle| oracle.new_read(consistency));
            self.step(disk, Input::Read { read, goal: vec![Command::Get(key(0))], consistency }, context);
        }
        if Oracle::with(|oracle| !oracle.is_healed) && context.rng().happens(0.02) {
            Oracle::with(|oracle| oracle.count("false hints", 1));
            let hinted = name(u32::try_from(context.rng().between(0, 7)).unwrap(), 0);
            self.step(disk, Input::ShouldLead(hinted), context);
        }
        if Oracle::with(|oracle| !oracle.is_healed) && context.rng().happens(0.03) {
            let last = u64::from(context.nodes() - 1);
            let to = name(u32::try_from(context.rng().between(0, last)).unwrap(), 0);
            self.step(disk, Input::TransferLeadership(to), context);
        }
    }

    fn submit(&mut self, disk: &mut Disk, tx: TxKey, context: &mut NodeContext<'_, Self>) {
        Oracle::with(|oracle| oracle.submitted(self.me, tx));
        let goal = some_goal(context.rng());
        self.step(disk, Input::Submit { tx, goal }, context);
    }

    /// Acts as the operator: removes a voter that has lost its disk, adds it under its new id, and adds and removes
    /// other voters.
    fn operate(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        if !self.ledger.is_ready() {
            return;
        }
        let now = self.ledger.state().voters().clone();
        let replaced = Oracle::with(|oracle| oracle.wiped);
        let to: Vec<_> = match replaced {
            Some(old) if now.contains(old) => {
                now.acceptors().iter().copied().filter(|node| *node != old).collect()
            }
            Some(old) if !now.contains(name(number(old), 1)) && now.acceptors().len() < 3 => {
                now.acceptors().iter().copied().chain([name(number(old), 1)]).collect()
            }
            _ if Oracle::with(|oracle| oracle.may_change()) && context.rng().happens(0.01) => {
                let last = u64::from(context.nodes() - 1);
                let node = u32::try_from(context.rng().between(0, last)).unwrap();
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
        self.step(disk, Input::ChangeConfiguration(Configuration::new(to).unwrap()), context);
    }

    /// Stores the waiting records in order, and then performs the outputs.
    fn flush(&mut self, disk: &mut Disk, context: &mut NodeContext<'_, Self>) {
        let pending = std::mem::take(&mut self.pending);
        disk.unflushed.clear();
        disk.ahead = None;
        let me = self.me;
        let stored = LedgerStep::<KeyValue>::release_all(pending, |records: Vec<Vec<Record<KeyValue>>>| {
            for record in records.into_iter().flatten() {
                Oracle::with(|oracle| oracle.stored(me, &record));
                if let Some(store) = &mut disk.store {
                    store.apply(record);
                }
            }
            Ok::<_, Infallible>(())
        });
        let mut outputs = stored.unwrap().into_iter().flatten().collect();
        coalesce_appends(&mut outputs, options().log.batch);
        for output in outputs {
            match output {
                Output::Send(to, message) => {
                    let message = if Oracle::with(|oracle| !oracle.is_healed) && context.rng().happens(0.2) {
                        tampered(message)
                    } else {
                        message
                    };
                    context.send(number(to), (me, to, message));
                }
                Output::Ended(tx_id, outcome) => self.ended(disk, tx_id, &outcome, context),
                Output::Rerouted { .. } => Oracle::with(|oracle| oracle.count("rerouted", 1)),
                Output::Answered { read, index, .. } => Oracle::with(|oracle| oracle.answered(read, index)),
                Output::Stored { term, slot } => {
                    self.stored = Some(term);
                    self.step(disk, Input::Stored { term, slot }, context);
                }
                Output::LeadershipTransferred(_) => {
                    Oracle::with(|oracle| oracle.count("leadership transferred", 1));
                }
                Output::TransferFailed(_) => {
                    Oracle::with(|oracle| oracle.count("leadership not transferred", 1));
                }
                Output::NotAnswered(..) => Oracle::with(|oracle| oracle.count("reads not answered", 1)),
                Output::Changed(to, slot) => Oracle::with(|oracle| oracle.changed(&to, slot)),
                Output::ChangeFailed(_, why) => Oracle::with(|oracle| oracle.not_changed(why)),
                Output::Diverged(divergence) => {
                    Oracle::with(|oracle| oracle.fail(format!("{me:?} has stopped: {divergence}")));
                }
            }
        }
    }

    /// Submits a transaction that ended as `Unknown` again, under the same id: at once at this node, or later at any node.
    fn ended(
        &mut self,
        disk: &mut Disk,
        tx_id: TxId,
        outcome: &Outcome<Values>,
        context: &mut NodeContext<'_, Self>,
    ) {
        let now_us = context.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        let healed_us = now_us.saturating_sub(super::FAULTS_US);
        let birth = Oracle::with(|oracle| oracle.ended(self.me, tx_id, outcome));
        let Outcome::Unknown { absent_through } = outcome else { return };
        let is_late = healed_us > 2 * options().result_us;
        Oracle::with(|oracle| oracle.count("unknown after healing", u64::from(is_late)));
        if now_us >= QUIET_US {
            return;
        }
        let birth = if context.rng().happens(0.5) { *absent_through } else { birth };
        let tx = TxKey { id: tx_id, birth };
        if context.rng().happens(0.5) {
            self.submit(disk, tx, context);
        } else {
            Oracle::with(|oracle| oracle.submit_later(tx));
        }
    }
}

/// Returns the duration of the next flush. In the fault phase a disk stalls now and then, for longer than other nodes take
/// to fill the dedup window, and at most until the healing.
fn flush_time_us(now_us: u64, rng: &mut SimRng) -> u64 {
    let stalls = rng.happens(0.004) && Oracle::with(|oracle| !oracle.is_healed);
    if !stalls {
        return rng.between(500, FLUSH_US);
    }
    Oracle::with(|oracle| oracle.count("stalled disk", 1));
    let left_us = super::FAULTS_US.saturating_sub(now_us).max(FLUSH_US);
    rng.between(400_000, 1_500_000).min(left_us)
}

pub(super) fn key(number: u64) -> Key {
    Key::new(format!("k{number}")).unwrap()
}

pub(super) fn some_goal(rng: &mut SimRng) -> Commands {
    let some_key = |rng: &mut SimRng| key(rng.between(0, 3));
    let add = Command::Increment(some_key(rng), i64::try_from(rng.between(1, 9)).unwrap());
    if rng.happens(0.3) {
        // Most often another transaction has changed the value: then the first command must leave no change.
        let expected = Some(i64::try_from(rng.between(0, 20)).unwrap().into());
        return vec![add, Command::CompareAndSet { key: some_key(rng), expected, new: None }];
    }
    vec![add]
}

/// Replaces the diff of an entry with an empty one and adjusts its state hash, so that only the certificate reveals
/// it.
fn tampered(message: TestMessage) -> TestMessage {
    let (first, mut entries, rest, certificate) = match message {
        Message::History { first, entries, rest, certificate } => (first, entries, rest, certificate),
        Message::State(snapshot) => return tampered_state(snapshot),
        message => return message,
    };
    let mut before = None;
    for entry in &mut entries {
        let EntryPayload::Value(value) = &mut entry.payload else { continue };
        if let Some(before) = before.filter(|_| !value.diff.is_empty()) {
            (value.diff, value.state_hash) = (crate::machine::Diff::default(), before);
            Oracle::with(|oracle| oracle.count("tampered history", 1));
            break;
        }
        before = Some(value.state_hash);
    }
    Message::History { first, entries, rest, certificate }
}

/// Removes a remembered transaction from a state: a node that adopted the state would execute that transaction twice.
fn tampered_state(mut snapshot: log::Snapshot<Checkpoint<Values>>) -> TestMessage {
    if snapshot.state.done.rows.pop().is_some() {
        Oracle::with(|oracle| oracle.count("tampered state", 1));
    }
    Message::State(snapshot)
}

pub(super) struct TestNotary(pub(super) NodeId);

fn sign(by: NodeId, index: Slot, hash: Hash) -> HeadSignature {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&by.0.to_le_bytes()).update(&index.0.to_le_bytes()).update(&hash.0);
    HeadSignature(hasher.finalize().as_bytes().to_vec())
}

impl Notary for TestNotary {
    fn sign(&self, index: Slot, hash: Hash) -> HeadSignature {
        sign(self.0, index, hash)
    }

    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &HeadSignature) -> bool {
        sign(by, index, hash) == *signature
    }
}
