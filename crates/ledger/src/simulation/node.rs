//! A node on a simulated machine, with the clients and the operator that use it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use holdoff_driver::faulty::DriverFault;
use holdoff_driver::{Core, Roll};
use holdoff_paxos::log::{self, EntryPayload};
use holdoff_paxos::{Configuration, NodeId, Slot};
use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_sim::kernel::{self, SimRng};
use holdoff_sim::kit::{Boot, FailedWrite, LostRecords, SimHost, SimMachine, Turn, stall_us};
use holdoff_testbed::fault::is_injected;

use super::QUIET_US;
use super::chunks::{self, Chunks};
use super::oracle::Oracle;
use super::properties::Violation;
use crate::ledger::faulty::{FaultyLedger, LedgerFault};
use crate::machine::{Command, Commands, Key, KeyValue, Values};
use crate::{
    Consistency, DedupLimits, Hash, HeadSignature, Input, Ledger, LedgerStep, Message, MessageOf, Notary,
    Options, Outcome, Output, OutputOf, Record, SnapshotDescription, Store, SubmissionId, TxId, TxKey,
    coalesce_appends,
};

const TICK_US: u64 = 20_000;
/// The maximum duration of a write.
const WRITE_US: u64 = 60_000;
/// About as much as the kept entries have, so that the number of entries and the number of bytes are limits in turn.
pub(super) const KEPT_BYTES: usize = 1_300;
/// More than the entries of a run have.
pub(super) const MANY_BYTES: usize = 1 << 20;
/// The maximum number of entries in a message.
const BATCH: usize = 8;
/// The time after which a transaction without a result is given up.
const RESULT_US: u64 = 900_000;

pub(super) type TestMessage = MessageOf<KeyValue>;

pub(super) type SimulatedNode = SimMachine<LedgerHost>;

/// The program around a node of the ledger, with its clients and its operator.
pub(super) struct LedgerHost {
    me: NodeId,
    submissions: BTreeMap<SubmissionId, TxId>,
    /// The last term of which this node has stored entries as the leader.
    counted: Option<log::Term>,
    /// The time of the last tick, by a clock that does not stand still.
    ticked_us: u64,
}

/// The content of a disk.
#[derive(Default)]
pub(super) struct Disk {
    store: Option<Store<KeyValue>>,
    chunks: Chunks,
    /// The snapshot that the process has saved or is saving.
    saved: Option<Hash>,
    /// The number of times that the disk was lost. A node that returns without its disk has another id.
    lost: u32,
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
            batch: BATCH,
            batch_bytes: 2_000,
            window: 24,
            window_bytes: 6_000,
            undecided: 24,
            early: false,
        },
        result_us: RESULT_US,
        resend_us: 200_000,
        fetching: fetching.attempts(u32::MAX).build().unwrap(),
        pending: 64,
        kept: 12,
        kept_bytes: MANY_BYTES,
        max_state_bytes: MANY_BYTES,
        snapshot_bytes: 64 << 20,
        chunk_bytes: 24,
        // At the rate of the simulation the window covers a few hundred milliseconds: less than a stall.
        dedup: DedupLimits { transactions: 24, bytes: 1 << 20 },
        batch: 8,
        lease_us: 200_000,
        drift_ppm: 50_000,
    }
}

/// What a host does later: it ticks, or ends a task with the chunks of a snapshot.
pub(super) enum Timer {
    Tick,
    /// Writes the first of these chunks, which has this number.
    Save(Hash, u64, Vec<Bytes>),
    Store {
        snapshot: Hash,
        number: u64,
        bytes: Bytes,
    },
    Load(Hash, u64),
}

/// The maximum duration of a task with a chunk.
const CHUNK_US: u64 = 30_000;

/// A node that shows its steps to the oracle.
pub(super) struct WatchedLedger(FaultyLedger<KeyValue, TestNotary>);

impl Deref for WatchedLedger {
    type Target = FaultyLedger<KeyValue, TestNotary>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Core for WatchedLedger {
    type Input = Input<KeyValue>;
    type Record = Record<KeyValue>;
    type Output = OutputOf<KeyValue>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<KeyValue>) -> LedgerStep<KeyValue> {
        let before = *self.counts();
        let step = Core::step(&mut self.0, now_us, roll, input);
        let now = self.counts();
        Oracle::with(|oracle| {
            oracle.count("history fetched", now.fetched - before.fetched);
            oracle.count("state fetched", now.states - before.states);
            oracle.count("transfer resumed", now.transfers_resumed - before.transfers_resumed);
            oracle.receiving(self.me, self.receives_from());
            oracle.count("refused", now.refused - before.refused);
            oracle.stepped(self.me, &step);
            oracle.look_at(self);
        });
        step
    }
}

impl SimHost for LedgerHost {
    type Core = WatchedLedger;
    type Message = (NodeId, NodeId, TestMessage);
    type Timer = Timer;
    type Store = Disk;

    fn start(disk: &mut Disk, boot: &mut Boot<'_, '_, Self>) -> (Self, WatchedLedger) {
        let first_voters = Oracle::with(|oracle| oracle.plan.first_voters());
        let empty = || Ledger::<KeyValue, TestNotary>::empty(first_voters.clone());
        let store = disk.store.get_or_insert_with(empty).clone();
        let me = name(boot.me(), disk.lost);
        let missed = Oracle::with(|oracle| oracle.history_head()).0.saturating_sub(store.last().0);
        Oracle::with(|oracle| {
            let is_behind = store.last().0 > 0 && missed > 2 * options().kept as u64;
            oracle.count("down under load", u64::from(is_behind));
        });
        disk.saved = None;
        let recovered = disk.chunks.recover(store);
        let (now_us, roll) = (boot.now_us(), boot.rng().roll());
        let mut options = options();
        let plan = Oracle::with(|oracle| oracle.plan);
        (options.log.early, options.kept_bytes) = (plan.early, plan.kept_bytes);
        let start =
            |recovered| FaultyLedger::new(me, options.clone(), TestNotary(me), recovered, now_us, roll);
        // An injected defect may have damaged the disk: the run fails, and the node goes on with an empty one.
        let ledger = start(recovered).unwrap_or_else(|divergence| {
            let violation = Violation::Diverged { node: me, divergence };
            Oracle::with(|oracle| oracle.violations.push(violation));
            disk.store = Some(empty());
            start(empty().into()).unwrap()
        });
        let first_us = boot.rng().between(1, TICK_US);
        boot.set_timer(first_us, Timer::Tick);
        (
            Self { me, submissions: BTreeMap::new(), counted: None, ticked_us: boot.wall_us() },
            WatchedLedger(ledger),
        )
    }

    fn receive(&mut self, _: u32, sent: Self::Message, turn: &mut Turn<'_, '_, Self>) {
        let (from, to, message) = sent;
        if to == self.me {
            let installs = matches!(message, Message::Log(log::Message::InstallSnapshot { .. }));
            Oracle::with(|oracle| oracle.count("snapshot sent", u64::from(installs)));
            turn.step(Input::Message(from, message));
            self.count_unstored(turn);
        }
    }

    fn wake(&mut self, timer: Timer, turn: &mut Turn<'_, '_, Self>) {
        match timer {
            Timer::Tick => {}
            timer => return Self::end_task(timer, turn),
        }
        turn.set_timer(TICK_US, Timer::Tick);
        let has_slept = turn.wall_us() > self.ticked_us + 4 * TICK_US;
        self.ticked_us = turn.wall_us();
        if has_slept {
            // A caller on a machine that was suspended reads before the node hears of another leader.
            Self::read(Consistency::Lease, turn);
        }
        turn.step(Input::Tick);
        self.submit_requests(turn);
        Self::operate(turn);
        self.count_unstored(turn);
    }

    fn perform(&mut self, output: OutputOf<KeyValue>, turn: &mut Turn<'_, '_, Self>) {
        match output {
            Output::Send(to, message) => {
                let message = if Oracle::with(|oracle| !oracle.is_healed) && turn.rng().happens(0.2) {
                    tampered(message)
                } else {
                    message
                };
                turn.send(number(to), (self.me, to, message));
            }
            Output::Ended(submission, outcome) => self.ended(submission, &outcome, turn),
            Output::Rerouted { .. } => Oracle::with(|oracle| oracle.count("rerouted", 1)),
            Output::Answered { read, index, .. } => Oracle::with(|oracle| oracle.answered(read, index)),
            Output::LeadershipTransferred(_) => {
                Oracle::with(|oracle| oracle.count("leadership transferred", 1));
            }
            Output::TransferFailed(_) => {
                Oracle::with(|oracle| oracle.count("leadership not transferred", 1));
            }
            Output::NotAnswered(..) => Oracle::with(|oracle| oracle.count("reads not answered", 1)),
            Output::Compacted(_) => {}
            Output::SaveSnapshot(id) => {
                if let Some(content) = turn.core().unsaved_snapshot(id) {
                    turn.store().saved = Some(id);
                    let chunks = chunks::encode(&content);
                    let has_several = u64::from(chunks.len() > 4);
                    Oracle::with(|oracle| oracle.count("snapshot in several chunks", has_several));
                    Self::delete_unused(turn);
                    Self::begin_task(Timer::Save(id, 0, chunks), turn);
                }
            }
            Output::ExpectSnapshot(snapshot) => {
                turn.store().chunks.expect(snapshot.map(|snapshot| *snapshot));
                Self::delete_unused(turn);
            }
            Output::StoreChunk { snapshot, number, bytes } => {
                Self::begin_task(Timer::Store { snapshot, number, bytes }, turn);
            }
            Output::LoadSnapshot(id, chunks) => Self::begin_task(Timer::Load(id, chunks), turn),
            Output::ReadChunk { to, snapshot, number } => {
                let bytes = turn.store().chunks.get(snapshot, number);
                let chunk = Output::Send(to, Message::Chunk { snapshot, number, bytes });
                self.perform(chunk, turn);
            }
            Output::Changed(to, slot) => Oracle::with(|oracle| oracle.changed(&to, slot)),
            Output::ChangeFailed(_, why) => Oracle::with(|oracle| oracle.not_changed(why)),
            Output::Diverged(divergence) => {
                let violation = Violation::Diverged { node: self.me, divergence };
                Oracle::with(|oracle| oracle.violations.push(violation));
            }
        }
    }

    fn store(disk: &mut Disk, node: u32, records: Vec<Record<KeyValue>>) -> Result<(), FailedWrite> {
        for record in records {
            Oracle::with(|oracle| oracle.stored(name(node, disk.lost), &record));
            if let Some(store) = &mut disk.store {
                store.apply(record);
            }
        }
        Ok(())
    }

    /// In the fault phase a disk stalls now and then, for longer than other nodes take to fill the dedup window, and at most until
    /// the healing.
    fn write_us(now_us: u64, rng: &mut SimRng) -> u64 {
        let stall_us = stall_us(now_us, super::FAULTS_US, rng);
        Oracle::with(|oracle| oracle.count("stalled disk", u64::from(stall_us.is_some())));
        stall_us.unwrap_or_else(|| rng.between(500, WRITE_US))
    }

    fn write_fails(_: &mut Disk, rng: &mut SimRng) -> bool {
        let fails = rng.happens(0.01) && Oracle::with(|oracle| !oracle.is_healed);
        Oracle::with(|oracle| oracle.count("failed write", u64::from(fails)));
        fails
    }

    fn combine(outputs: &mut Vec<OutputOf<KeyValue>>) {
        coalesce_appends(outputs, BATCH);
    }

    /// Loses the unstored records, or the whole disk.
    fn crash(disk: &mut Disk, node: u32, lost: &LostRecords<Record<KeyValue>>, rng: &mut SimRng) {
        let id = name(node, disk.lost);
        Oracle::with(|oracle| {
            oracle.crashed(id, &lost.records);
            oracle.count("torn tail", u64::from(lost.is_torn));
        });
        if let Some(store) = &disk.store {
            let is_torn = disk.chunks.crash(store, rng);
            Oracle::with(|oracle| oracle.count("torn chunk", u64::from(is_torn)));
        }
        if Oracle::with(|oracle| oracle.may_wipe(id)) {
            (disk.store, disk.chunks) = (None, Chunks::default());
            disk.lost += 1;
        }
    }

    fn clock_stands() -> bool {
        is_injected(LedgerFault::StandingClock)
    }

    fn driver_fault() -> Option<DriverFault> {
        DRIVER_FAULTS.into_iter().find(|fault| is_injected(*fault))
    }
}

/// The defects of the driver that the simulation must find.
pub(crate) const DRIVER_FAULTS: [DriverFault; 3] =
    [DriverFault::SendBeforeStore, DriverFault::ReleaseTwice, DriverFault::ContinueAfterFailure];

impl LedgerHost {
    /// Reports the leader's last entry as stored before it is, if that fault is injected. The node is past the first write of
    /// its term.
    fn count_unstored(&mut self, turn: &mut Turn<'_, '_, Self>) {
        if !is_injected(LedgerFault::CountUnstored) {
            return;
        }
        let (term, slot) = (turn.core().leads(), turn.core().store().last());
        if let Some(term) = term.filter(|_| turn.core().is_ready()) {
            self.counted = Some(term);
            turn.step(Input::Stored { term, slot });
        }
    }

    fn begin_task(task: Timer, turn: &mut Turn<'_, '_, Self>) {
        let after_us = turn.rng().between(500, CHUNK_US);
        turn.set_timer(after_us, task);
    }

    fn end_task(task: Timer, turn: &mut Turn<'_, '_, Self>) {
        match task {
            Timer::Tick => {}
            Timer::Save(snapshot, number, mut chunks) => {
                if chunks.is_empty() {
                    return turn.step(Input::SnapshotSaved { snapshot, chunks: number });
                }
                turn.store().chunks.put(snapshot, number, chunks.remove(0));
                Self::begin_task(Timer::Save(snapshot, number + 1, chunks), turn);
            }
            Timer::Store { snapshot, number, bytes } => {
                turn.store().chunks.put_received(snapshot, number, bytes);
                turn.step(Input::ChunkStored { snapshot, number });
            }
            Timer::Load(snapshot, chunks) => {
                let loaded = turn.store().chunks.load(snapshot, chunks);
                turn.step(loaded);
            }
        }
    }

    fn delete_unused(turn: &mut Turn<'_, '_, Self>) {
        let Disk { store, chunks, saved, .. } = turn.store();
        if let Some(store) = store {
            chunks.delete_unused(store, *saved);
        }
    }

    /// Submits the requests of clients, at any node.
    fn submit_requests(&mut self, turn: &mut Turn<'_, '_, Self>) {
        let now_us = turn.wall_us().saturating_sub(kernel::Skew::EPOCH_US);
        if now_us >= QUIET_US {
            return;
        }
        if turn.rng().happens(0.3) {
            let id = Oracle::with(Oracle::new_tx);
            let tx = TxKey { id, birth: turn.core().state().index() };
            self.submit(tx, turn);
        }
        if turn.rng().happens(0.05)
            && let Some(tx) = Oracle::with(|oracle| oracle.later.pop())
        {
            Oracle::with(|oracle| oracle.count("submitted again later", 1));
            self.submit(tx, turn);
        }
        if turn.rng().happens(0.1) {
            let consistency =
                *[Consistency::Local, Consistency::Quorum, Consistency::Lease, Consistency::Lease]
                    .get(usize::try_from(turn.rng().between(0, 3)).unwrap())
                    .unwrap();
            Self::read(consistency, turn);
        }
        if Oracle::with(|oracle| !oracle.is_healed) && turn.rng().happens(0.02) {
            Oracle::with(|oracle| oracle.count("false hints", 1));
            let hinted = name(u32::try_from(turn.rng().between(0, 7)).unwrap(), 0);
            turn.step(Input::ShouldLead(hinted));
        }
        if Oracle::with(|oracle| !oracle.is_healed) && turn.rng().happens(0.03) {
            let last = u64::from(turn.nodes() - 1);
            let to = name(u32::try_from(turn.rng().between(0, last)).unwrap(), 0);
            turn.step(Input::TransferLeadership(to));
        }
    }

    fn read(consistency: Consistency, turn: &mut Turn<'_, '_, Self>) {
        let read = Oracle::with(|oracle| oracle.reads.begin(consistency));
        turn.step(Input::Read { read, goal: vec![Command::Get(key(0))], consistency });
    }

    fn submit(&mut self, tx: TxKey, turn: &mut Turn<'_, '_, Self>) {
        Oracle::with(|oracle| oracle.outcomes.submitted(self.me, tx));
        let goal = some_goal(turn.rng());
        let submission = SubmissionId(Oracle::with(Oracle::new_submission));
        self.submissions.insert(submission, tx.id);
        let deadline_us = turn.now_us() + RESULT_US;
        turn.step(Input::Submit { submission, tx, goal, deadline_us });
    }

    /// Acts as the operator: removes a voter that has lost its disk, adds it under its new id, and adds and removes
    /// other voters.
    fn operate(turn: &mut Turn<'_, '_, Self>) {
        if !turn.core().is_ready() {
            return;
        }
        let now = turn.core().state().voters().clone();
        let replaced = Oracle::with(|oracle| oracle.wiped);
        let to: Vec<_> = match replaced {
            Some(old) if now.contains(old) => {
                now.acceptors().iter().copied().filter(|node| *node != old).collect()
            }
            Some(old) if !now.contains(name(number(old), 1)) && now.acceptors().len() < 3 => {
                now.acceptors().iter().copied().chain([name(number(old), 1)]).collect()
            }
            _ if Oracle::with(|oracle| oracle.may_change()) && turn.rng().happens(0.01) => {
                let last = u64::from(turn.nodes() - 1);
                let node = u32::try_from(turn.rng().between(0, last)).unwrap();
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
        turn.step(Input::ChangeConfiguration(Configuration::new(to).unwrap()));
    }

    /// Submits a transaction that ended as `Unknown` again, under the same id: at once at this node, or later at any node.
    fn ended(&mut self, submission: SubmissionId, outcome: &Outcome<Values>, turn: &mut Turn<'_, '_, Self>) {
        let Some(tx_id) = self.submissions.remove(&submission) else {
            let violation = Violation::EndedTwice { submission, outcome: Box::new(outcome.clone()) };
            return Oracle::with(|oracle| oracle.violations.push(violation));
        };
        let now_us = turn.wall_us().saturating_sub(kernel::Skew::EPOCH_US);
        let healed_us = now_us.saturating_sub(super::FAULTS_US);
        let birth = Oracle::with(|oracle| oracle.ended(self.me, tx_id, outcome));
        let Outcome::Unknown { absent_through } = outcome else { return };
        let is_late = healed_us > 2 * RESULT_US;
        Oracle::with(|oracle| oracle.count("unknown after healing", u64::from(is_late)));
        if now_us >= QUIET_US {
            return;
        }
        let birth = if turn.rng().happens(0.5) { *absent_through } else { birth };
        let tx = TxKey { id: tx_id, birth };
        if turn.rng().happens(0.5) {
            self.submit(tx, turn);
        } else {
            Oracle::with(|oracle| oracle.later.push(tx));
        }
    }
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
        Message::Chunk { snapshot, number, bytes } => return tampered_chunk(snapshot, number, bytes),
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

/// Offers a state with other remembered transactions: a node that adopted it would execute a transaction twice.
fn tampered_state(mut snapshot: SnapshotDescription) -> TestMessage {
    snapshot.state.done = snapshot.state.machine;
    Oracle::with(|oracle| oracle.count("tampered state", 1));
    Message::State(snapshot)
}

/// Removes the last bytes of some chunks.
fn tampered_chunk(snapshot: Hash, number: u64, bytes: Option<Bytes>) -> TestMessage {
    let is_tampered = number % 5 == 4;
    Oracle::with(|oracle| oracle.count("tampered chunk", u64::from(is_tampered)));
    let bytes = bytes.map(|bytes| if is_tampered { bytes.slice(..bytes.len() / 2) } else { bytes });
    Message::Chunk { snapshot, number, bytes }
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
