//! A node on a simulated machine, with the clients and the operator that use it.

use std::hash::{DefaultHasher, Hash, Hasher};

use holdoff_driver::faulty::DriverFault;
use holdoff_driver::{Core, Roll, StepOf};
use holdoff_sim::kernel::{self, SimRng};
use holdoff_sim::kit::{Boot, FailedWrite, LostRecords, SimHost, Turn, stall_us};
use holdoff_testbed::fault::is_injected;

use super::oracle::Oracle;
use super::{FAULTS_US, QUIET_US};
use crate::log::faults::FaultyNode;
use crate::log::{Entry, Input, Message, Node, Options, Output, Record, Snapshot, Store};
use crate::{Configuration, NodeId, Slot};

pub(super) type State = u64;

const TICK_US: u64 = 20_000;
/// The maximum duration of a write.
const WRITE_US: u64 = 40_000;
/// An entry has 56 bytes: a message has five of them, and the window about twenty.
const OPTIONS: Options = Options {
    election_us: 250_000,
    heartbeat_us: 60_000,
    batch: 8,
    batch_bytes: 300,
    window: 32,
    window_bytes: 1000,
    undecided: 64,
    early: false,
};
/// The maximum number of applied entries before the node compacts its log.
const KEPT: u64 = 20;

pub(super) type Machine = holdoff_sim::kit::SimMachine<LogHost>;

/// The program around a node of the log.
pub(super) struct LogHost {
    pub(super) applied: (Slot, State),
    led: bool,
}

/// The content of a disk.
#[derive(Default)]
pub(super) struct Disk(Option<Store<u64, State>>);

/// A node that shows its steps to the oracle.
pub(super) struct WatchedNode(FaultyNode<u64, State>);

impl WatchedNode {
    pub(super) fn node(&self) -> &Node<u64, State> {
        &self.0.0
    }
}

impl Core for WatchedNode {
    type Input = Input<u64, State>;
    type Record = Record<u64, State>;
    type Output = Output<u64, State>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<u64, State>) -> StepOf<Self> {
        let step = self.0.step(now_us, roll, input);
        Oracle::with(|oracle| oracle.stepped(self.node().me, &step));
        step
    }
}

pub(super) fn name(node: kernel::NodeId) -> NodeId {
    NodeId(u128::from(node) + 1)
}

/// Returns the state after an entry.
fn digest(state: State, entry: &Entry<u64>) -> State {
    let mut hasher = DefaultHasher::new();
    (state, entry).hash(&mut hasher);
    hasher.finish()
}

fn number(node: NodeId) -> kernel::NodeId {
    u32::try_from(node.0 - 1).unwrap()
}

impl SimHost for LogHost {
    type Core = WatchedNode;
    type Message = Message<u64, State>;
    /// The arrival of a state that belongs to an offered snapshot, or the next tick.
    type Timer = Option<Snapshot<State>>;
    type Store = Disk;

    fn start(Disk(store): &mut Disk, boot: &mut Boot<'_, '_, Self>) -> (Self, WatchedNode) {
        let new = || Store::new(Oracle::with(|oracle| oracle.plan.first_voters()), 0);
        let store = store.get_or_insert_with(new).clone();
        let applied = (store.snapshot().last.slot, store.snapshot().state);
        let (now_us, roll) = (boot.now_us(), boot.rng().roll());
        let options = Options { early: Oracle::with(|oracle| oracle.plan.early), ..OPTIONS };
        let node = Node::new(name(boot.me()), options, store, now_us, roll);
        let first_us = boot.rng().between(1, TICK_US);
        boot.set_timer(first_us, None);
        let mut host = Self { applied, led: false };
        host.apply(&node, node.store().decided());
        (host, WatchedNode(FaultyNode(node)))
    }

    fn receive(&mut self, from: u32, message: Self::Message, turn: &mut Turn<'_, '_, Self>) {
        note_time(turn);
        turn.step(Input::Message(name(from), message));
    }

    fn wake(&mut self, snapshot: Self::Timer, turn: &mut Turn<'_, '_, Self>) {
        note_time(turn);
        if let Some(snapshot) = snapshot {
            return turn.step(Input::RestoreSnapshot(snapshot));
        }
        turn.set_timer(TICK_US, None);
        turn.step(Input::Tick);
        self.submit_requests(turn);
    }

    fn perform(&mut self, output: Output<u64, State>, turn: &mut Turn<'_, '_, Self>) {
        match output {
            Output::Send(to, message) => turn.send(number(to), message),
            Output::Decided(slot) => self.apply(turn.core().node(), slot),
            Output::SnapshotOffered(_, snapshot) => {
                let after_us = turn.rng().between(1, 4 * OPTIONS.heartbeat_us);
                turn.set_timer(after_us, Some(snapshot));
            }
            Output::Installed(slot) => {
                Oracle::with(|oracle| oracle.ran.installed += 1);
                self.apply(turn.core().node(), slot);
            }
            Output::Proposed(..) => Oracle::with(|oracle| oracle.ran.proposed += 1),
            Output::ProposalRejected(_) => Oracle::with(|oracle| oracle.ran.rejected += 1),
            Output::LeadershipTransferred(_) => Oracle::with(|oracle| oracle.ran.transferred += 1),
            Output::TransferFailed(_) => Oracle::with(|oracle| oracle.ran.failed_transfers += 1),
        }
    }

    fn store(Disk(store): &mut Disk, node: u32, records: Vec<Record<u64, State>>) -> Result<(), FailedWrite> {
        for record in records {
            Oracle::with(|oracle| oracle.stored(name(node), &record));
            if let Some(store) = store {
                store.apply(record);
            }
        }
        Ok(())
    }

    fn write_us(now_us: u64, rng: &mut SimRng) -> u64 {
        let stall_us = stall_us(now_us, FAULTS_US, rng);
        Oracle::with(|oracle| oracle.ran.stalled += u64::from(stall_us.is_some()));
        stall_us.unwrap_or_else(|| rng.between(500, WRITE_US))
    }

    fn observe(&mut self, core: &WatchedNode) {
        let leads = core.node().leads();
        if let Some(term) = leads.filter(|_| !self.led) {
            Oracle::with(|oracle| oracle.leads(term, core.node()));
        }
        self.led = leads.is_some();
    }

    fn crash(_: &mut Disk, node: u32, lost: &LostRecords<Record<u64, State>>, _: &mut SimRng) {
        Oracle::with(|oracle| oracle.crashed(name(node), lost.records.len() + lost.unwritten));
    }

    fn driver_fault() -> Option<DriverFault> {
        [DriverFault::SendBeforeStore].into_iter().find(|fault| is_injected(*fault))
    }
}

/// Tells the oracle the time.
fn note_time(turn: &Turn<'_, '_, LogHost>) {
    Oracle::with(|oracle| oracle.now_us = turn.now_us().saturating_sub(kernel::Skew::EPOCH_US));
}

impl LogHost {
    /// Plays the clients and the operator: proposals, changes, transfers, hints and compaction.
    fn submit_requests(&mut self, turn: &mut Turn<'_, '_, Self>) {
        let now_us = turn.now_us().saturating_sub(kernel::Skew::EPOCH_US);
        if turn.core().node().leads().is_some() && now_us < QUIET_US {
            for _ in 0..turn.rng().between(0, 3) {
                let value = Oracle::with(Oracle::new_value);
                turn.step(Input::Propose(value));
            }
            if Oracle::with(|oracle| oracle.plan.may_change) && turn.rng().happens(0.03) {
                Self::change(turn);
            }
            if now_us < FAULTS_US && turn.rng().happens(0.01) {
                let last = u64::from(turn.nodes() - 1);
                let to = name(u32::try_from(turn.rng().between(0, last)).unwrap());
                turn.step(Input::TransferLeadership(to));
            }
        }
        if now_us < FAULTS_US && turn.rng().happens(0.01) {
            turn.step(Input::Campaign);
        }
        Self::learn(turn);
        let (through, state) = self.applied;
        if through.0 > turn.core().node().store().snapshot().last.slot.0 + KEPT {
            turn.step(Input::Compact { through, state });
        }
    }

    /// Plays a peer with a proof: it sends decided entries, or a snapshot to a node that is far behind.
    fn learn(turn: &mut Turn<'_, '_, Self>) {
        if !Oracle::with(|oracle| oracle.plan.may_learn) || !turn.rng().happens(0.02) {
            return;
        }
        let decided = turn.core().node().store().decided();
        let last = Oracle::with(|oracle| oracle.agreement.last_decided());
        if last.0 > decided.0 + KEPT && turn.rng().happens(0.5) {
            let slot = Slot(turn.rng().between(decided.0 + 1, last.0));
            let first = Oracle::with(|oracle| oracle.plan.first_voters());
            if let Some(snapshot) = Oracle::with(|oracle| oracle.agreement.snapshot_at(slot, first)) {
                Oracle::with(|oracle| oracle.ran.restored += 1);
                turn.step(Input::RestoreSnapshot(snapshot));
            }
            return;
        }
        let limit = usize::try_from(turn.rng().between(1, 8)).unwrap();
        let entries = Oracle::with(|oracle| oracle.agreement.entries_after(decided, limit));
        if !entries.is_empty() {
            Oracle::with(|oracle| oracle.ran.learned += 1);
            turn.step(Input::Learn { first: decided.next(), entries });
        }
    }

    /// Adds or removes a voter. At least three voters remain.
    fn change(turn: &mut Turn<'_, '_, Self>) {
        let last = u64::from(turn.nodes() - 1);
        let one = name(u32::try_from(turn.rng().between(0, last)).unwrap());
        let now = turn.core().node().store().configuration();
        let without = now.acceptors().iter().copied().filter(|node| *node != one);
        let to: Vec<_> = if now.contains(one) { without.collect() } else { without.chain([one]).collect() };
        if to.len() >= 3 {
            turn.step(Input::ChangeConfiguration(Configuration::new(to).unwrap()));
        }
    }

    /// Applies the decided entries in order, each once, up to the slot whose decision was released after storing.
    fn apply(&mut self, node: &Node<u64, State>, through: Slot) {
        let store = node.store();
        let base = store.snapshot();
        if base.last.slot > self.applied.0 {
            self.applied = (base.last.slot, base.state);
            Oracle::with(|oracle| oracle.reached(self.applied));
        }
        while self.applied.0 < through {
            let slot = self.applied.0.next();
            let entry = store.entry(slot).unwrap();
            Oracle::with(|oracle| oracle.decided(node.me, store.promised(), slot, entry));
            self.applied = (slot, digest(self.applied.1, entry));
            Oracle::with(|oracle| oracle.reached(self.applied));
        }
    }
}
