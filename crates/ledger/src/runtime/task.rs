//! The task that owns a node's core.
//!
//! ```text
//! events of callers, envelopes of peers ──▶ driver of the core ──▶ writes ──▶ thread of the disk ──▶ driver ──▶ outputs: messages, answers
//! ```

mod inputs;
mod membership;
mod outputs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use holdoff_disk::DiskError;
use holdoff_driver::{DiskThread, Driver, WriteOptions, Written};
use holdoff_gossip::{Ed25519, Electorate, Group, Watch};
use holdoff_net::{PublicKey, QueueReceiver, SecretKey};
use holdoff_paxos::log;
use holdoff_paxos::{NodeId, Slot};
use tokio::sync::{mpsc, oneshot, watch};

use super::address_book::AddressBook;
use super::identity::{LedgerId, NodeNotary};
use super::peers::Peers;
use super::roster::{LedgerMember, MembershipChange, is_address};
use super::snapshots::SnapshotThreads;
use super::status::{LedgerStatus, NodeStatus};
use super::store::{LedgerInfo, Store};
use super::wire::{AppliedHead, Envelope, LeaderCommand};
use super::{
    AnswerOf, Error, GoalOf, HistoryEntry, NodeMachine, NodeState, Settings, TransferRejection, clock,
};
use crate::entry::{TxId, TxKey};
use crate::ledger::{
    self, Consistency, IncompleteSnapshot, Input, Ledger, Options, Outcome, ReadId, Record, Recovered,
    Refounding, SubmissionId, Verification,
};
use crate::machine::GoalError;

/// The maximum number of events that the task handles before it begins a write.
const MAX_EVENTS_PER_BATCH: usize = 1024;
/// The number of records, and of outputs, that wait for the disk from which on the task accepts no further events.
const MAX_UNWRITTEN: usize = 16 * 1024;
const MAX_HELD: usize = 64 * 1024;
/// The interval of the core's ticks.
const TICK: Duration = Duration::from_millis(25);
/// The interval at which the task compares the roster with the configuration.
const MEMBER_CHECK: Duration = Duration::from_millis(250);

/// An envelope of a peer that has proved its key.
pub(super) struct ReceivedEnvelope {
    pub(super) from: PublicKey,
    pub(super) incarnation: u64,
    pub(super) envelope: Envelope,
}

/// The events that a node's task handles.
pub(super) enum Event<M: NodeMachine> {
    /// A caller submits a transaction.
    Submit { tx: TxKey, goal: GoalOf<M>, deadline_us: u64, reply: oneshot::Sender<Outcome<AnswerOf<M>>> },
    /// A caller reads.
    Read { goal: M::Goal, consistency: Consistency, reply: oneshot::Sender<ReadReply<M>> },
    /// A caller requests a command of the leader.
    LeaderCommand { command: LeaderCommand, reply: oneshot::Sender<LeaderReply> },
    /// A caller requests at most `limit` entries after an index.
    History { after: Slot, limit: usize, reply: oneshot::Sender<HistoryReply<M>> },
    /// A caller requests the status.
    Status(oneshot::Sender<LedgerStatus>),
    /// A caller requests a verification of the history.
    Verify(oneshot::Sender<Verification>),
    /// A caller requests a snapshot that replaces old entries.
    Compact(oneshot::Sender<Slot>),
    /// The host stops the node.
    Stop,
}

/// The answer of a read and the index of the last entry that it includes, or the leader to ask, if known.
pub(super) type ReadReply<M> =
    Result<(Slot, Result<<M as crate::machine::StateMachine>::Answer, GoalError>), Option<PublicKey>>;
/// The target of a leader's command, or the reason why it was not executed.
pub(super) type LeaderReply = Result<PublicKey, LeaderError>;
/// Entries, or the index of the oldest entry that the node keeps.
pub(super) type HistoryReply<M> = Result<Vec<HistoryEntry<M>>, Slot>;

/// The reason why a command of the leader was not executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LeaderError {
    /// This node does not lead. Contains the leader, if known.
    NotLeader(Option<PublicKey>),
    /// The leader has rejected the command.
    Rejected(TransferRejection),
}

/// The parts of which a task is built.
pub(super) struct TaskParts<M: NodeMachine> {
    pub(super) namespace: String,
    pub(super) info: LedgerInfo,
    pub(super) key: SecretKey,
    pub(super) incarnation: u64,
    pub(super) address: String,
    pub(super) settings: Settings,
    pub(super) recovered: Recovered<NodeState<M>>,
    pub(super) listed_members: Vec<(PublicKey, LedgerMember)>,
    pub(super) address_book: Arc<AddressBook>,
    pub(super) peers: Arc<Peers>,
}

pub(super) struct Task<M: NodeMachine> {
    namespace: String,
    ledger: LedgerId,
    me: NodeId,
    key: PublicKey,
    incarnation: u64,
    address: String,
    settings: Settings,
    driver: Driver<Ledger<NodeState<M>, NodeNotary>>,
    gossip: holdoff_gossip::Node<SecretKey, Ed25519>,
    address_book: Arc<AddressBook>,
    peers: Arc<Peers>,
    /// The last recovery of the ledger that this node knows of.
    refounded: Option<Refounding>,
    /// The reason to stop, if the ledger was recovered without this node.
    given_up: Option<Error>,
    /// The threads of snapshots, while the task runs.
    snapshots: Option<SnapshotThreads<NodeState<M>>>,
    /// The members that a contact has listed when this node joined. They count until this node finds itself in the roster.
    listed_members: Vec<(PublicKey, LedgerMember)>,
    rng: Rng,
    callers: BTreeMap<SubmissionId, oneshot::Sender<Outcome<AnswerOf<M>>>>,
    readers: BTreeMap<ReadId, oneshot::Sender<ReadReply<M>>>,
    transfer_callers: Vec<oneshot::Sender<LeaderReply>>,
    compact_callers: VecDeque<oneshot::Sender<Slot>>,
    next_call: u64,
    /// The transaction that registers this node's address in the roster, and the time of its first submission.
    registration: Option<(TxId, u64)>,
    /// The time until which this node ignores hints that name it, after it has transferred leadership.
    ignore_hints_until_us: u64,
    peer_statuses: BTreeMap<PublicKey, PeerStatus>,
    observed: Observed,
    node_status: watch::Sender<NodeStatus>,
    counts: super::NodeCounters,
}

/// The status that a peer has sent, and the time of its arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerStatus {
    pub(super) incarnation: u64,
    pub(super) head: AppliedHead,
    pub(super) at_us: u64,
}

/// The state of the core at the last observation.
struct Observed {
    index: Slot,
    roster: Option<crate::machine::StateHash>,
    voters: Vec<NodeId>,
    leader: Option<NodeId>,
    leads_since_us: u64,
}

impl<M: NodeMachine> Task<M> {
    pub(super) fn new(parts: TaskParts<M>) -> Result<(Self, watch::Receiver<NodeStatus>), Error> {
        let TaskParts {
            namespace,
            info,
            key,
            incarnation,
            address,
            settings,
            recovered,
            listed_members,
            address_book,
            peers,
        } = parts;
        let (now_us, mut rng) = (clock::now_us(), Rng::new());
        let me = NodeId::derive(key.public().as_bytes(), incarnation);
        let notary = NodeNotary::new(info.ledger, key.clone(), incarnation);
        // The disks of all voters write in parallel.
        let log = log::Options { early: true, ..settings.ledger.log };
        let options = Options { log, ..settings.ledger.clone() };
        if let Some(IncompleteSnapshot { snapshot, chunks: stored }) = &recovered.incomplete {
            let (index, chunks) = (snapshot.last.slot, snapshot.state.chunks);
            tracing::info!(%namespace, %index, chunks, stored, "found a part of a snapshot, and continues to receive it");
        }
        let core = Ledger::new(me, options, notary, recovered, now_us, rng.u32(..))?;
        let electorate = Electorate::from(key.public());
        let watch =
            Watch::new(Group(info.ledger.0), key.clone(), Ed25519, electorate, &settings.gossip, now_us);
        if !is_address(&address) {
            return Err(Error::BadAddress(address));
        }
        let gossip = holdoff_gossip::Node::new(watch, Vec::new(), &settings.gossip);
        let (node_status, observed) = watch::channel(NodeStatus::default());
        let task = Self {
            namespace,
            ledger: info.ledger,
            me,
            key: key.public(),
            incarnation,
            address,
            settings,
            driver: Driver::new(core, WriteOptions::default()),
            gossip,
            address_book,
            peers,
            refounded: info.refounded,
            given_up: None,
            snapshots: None,
            listed_members,
            rng,
            callers: BTreeMap::new(),
            readers: BTreeMap::new(),
            transfer_callers: Vec::new(),
            compact_callers: VecDeque::new(),
            next_call: 0,
            registration: None,
            ignore_hints_until_us: 0,
            peer_statuses: BTreeMap::new(),
            observed: Observed {
                index: Slot(0),
                roster: None,
                voters: Vec::new(),
                leader: None,
                leads_since_us: now_us,
            },
            node_status,
            counts: super::NodeCounters::default(),
        };
        Ok((task, observed))
    }

    /// Runs until the host stops the node or all handles are dropped. Returns an error if the node stops by itself.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event<M>>,
        mut inbox: QueueReceiver<ReceivedEnvelope>,
        store: Store,
    ) -> Result<(), Error> {
        let (finished, mut writes) = mpsc::unbounded_channel();
        // The core limits the number of tasks of these threads.
        let (loaded, mut inputs) = mpsc::unbounded_channel();
        let chunk_bytes = self.settings.ledger.chunk_bytes;
        let snapshots =
            SnapshotThreads::start(&store.chunks(), chunk_bytes, move |result| drop(loaded.send(result)))?;
        let disk = DiskThread::start("ledger disk", store, move |result| drop(finished.send(result)))
            .map_err(DiskError::new)?;
        self.snapshots = Some(snapshots);
        let result = self.run_on(&disk, &mut writes, &mut inputs, &mut events, &mut inbox).await;
        let snapshots = self.snapshots.take();
        // The store is closed before a caller learns of the end.
        let close = move || {
            if let Some(snapshots) = snapshots {
                snapshots.join();
            }
            disk.join();
        };
        drop(tokio::task::spawn_blocking(close).await);
        result
    }

    async fn run_on(
        &mut self,
        disk: &DiskThread<Record<NodeState<M>>>,
        writes: &mut mpsc::UnboundedReceiver<Result<Written, Error>>,
        inputs: &mut mpsc::UnboundedReceiver<Result<Input<NodeState<M>>, Error>>,
        events: &mut mpsc::Receiver<Event<M>>,
        inbox: &mut QueueReceiver<ReceivedEnvelope>,
    ) -> Result<(), Error> {
        let mut tick = every(TICK);
        let mut member_check = every(MEMBER_CHECK);
        let mut round = every(self.settings.gossip.round);
        let mut received = Vec::new();
        self.observe();
        loop {
            let has_room = self.driver.unwritten() < MAX_UNWRITTEN && self.driver.held() < MAX_HELD;
            tokio::select! {
                count = events.recv_many(&mut received, MAX_EVENTS_PER_BATCH), if has_room => {
                    if count == 0 {
                        return Ok(());
                    }
                }
                Some(first) = inbox.recv(), if has_room => {
                    let more = std::iter::from_fn(|| inbox.try_recv()).take(MAX_EVENTS_PER_BATCH - 1);
                    for envelope in std::iter::once(first).chain(more) {
                        self.handle_envelope(envelope);
                    }
                }
                finished = writes.recv() => {
                    let lost = || Error::from(DiskError::new("the disk's thread has stopped without a reason"));
                    let written = finished.ok_or_else(lost)??;
                    self.driver.finish_write(clock::now_us(), &mut || self.rng.u32(..), written);
                }
                input = inputs.recv() => {
                    let lost = || Error::from(DiskError::new("the thread of snapshots has stopped without a reason"));
                    self.step(input.ok_or_else(lost)??);
                }
                _ = tick.tick() => self.step(Input::Tick),
                _ = round.tick() => self.gossip_round(),
                _ = member_check.tick() => self.check_members(),
            }
            for event in received.drain(..) {
                match event {
                    Event::Stop => return Ok(()),
                    event => self.handle(event),
                }
            }
            self.observe();
            self.perform_outputs();
            if let Some(error) = self.given_up.take() {
                return Err(error);
            }
            if let Some(divergence) = self.driver.core().divergence() {
                return Err(divergence.clone().into());
            }
            while let Some(write) = self.driver.begin_write(clock::now_us()) {
                disk.write(write);
            }
        }
    }

    fn handle(&mut self, event: Event<M>) {
        match event {
            Event::Submit { tx, goal, deadline_us, reply } => {
                let submission = SubmissionId(self.next_call());
                self.callers.insert(submission, reply);
                self.step(Input::Submit { submission, tx, goal, deadline_us });
            }
            Event::Read { goal, consistency, reply } => {
                let read = ReadId(self.next_call());
                self.readers.insert(read, reply);
                self.step(Input::Read { read, goal: crate::machine::Either::Second(goal), consistency });
            }
            Event::LeaderCommand { command, reply } => self.execute(command, reply),
            Event::History { after, limit, reply } => drop(reply.send(self.history(after, limit))),
            Event::Status(reply) => drop(reply.send(self.status())),
            Event::Verify(reply) => drop(reply.send(self.driver.core().verify())),
            Event::Compact(reply) => {
                self.compact_callers.push_back(reply);
                self.step(Input::Compact);
            }
            Event::Stop => {}
        }
    }

    /// Passes an input to the core.
    fn step(&mut self, input: Input<NodeState<M>>) {
        self.driver.step(clock::now_us(), &mut || self.rng.u32(..), input);
    }

    /// Performs the outputs that the driver has released, combined into as few messages as possible.
    fn perform_outputs(&mut self) {
        if self.driver.core().must_announce() {
            self.step(Input::Announce);
        }
        let mut outputs = self.driver.take_outputs();
        ledger::coalesce_appends(&mut outputs, self.settings.ledger.log.batch);
        for output in outputs {
            self.perform(output);
        }
    }

    /// Returns the number of a caller's request.
    fn next_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    /// Submits a membership change of this node's own.
    fn change_roster(&mut self, change: MembershipChange) {
        let tx = TxKey { id: TxId(self.rng.u128(..)), birth: self.driver.core().state().index() };
        self.submit_own(tx, change);
    }

    /// Submits a transaction for which no caller waits.
    fn submit_own(&mut self, tx: TxKey, change: MembershipChange) {
        let submission = SubmissionId(self.next_call());
        let deadline_us = clock::now_us().saturating_add(self.settings.ledger.result_us);
        let goal = crate::machine::Either::First(change);
        self.step(Input::Submit { submission, tx, goal, deadline_us });
    }
}

fn every(time: Duration) -> tokio::time::Interval {
    let mut interval = clock::interval(time.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(clock::MissedTickBehavior::Delay);
    interval
}
