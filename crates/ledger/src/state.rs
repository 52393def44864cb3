//! The state that the applied entries have produced, and the transactions that it remembers.

use holdoff_paxos::log::{self, EntryPayload, Term};
use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Head};
use crate::dedup::{DedupLimits, Done, DoneRows, TxPosition};
use crate::entry::{Hash, LogEntry, ReplicatedMachine, TxId, link_sized};
use crate::machine::{BadSnapshot, DiffMismatch, GoalError, StateHash};

/// A machine, the index of its last applied entry, and the transactions that it remembers.
///
/// A state accepts only the entry at the next index whose `prev_hash` is its own hash. The index never advances
/// without the diff.
#[derive(Clone, Debug)]
pub struct State<M: ReplicatedMachine> {
    pub(crate) machine: M,
    pub(crate) index: Slot,
    pub(crate) hash: Hash,
    /// The size of all entries so far, in bytes.
    pub(crate) written: u64,
    /// The term of the leader that created the last entry.
    term: Term,
    /// The first index that `voters` decide.
    pub(crate) start: Slot,
    pub(crate) voters: Configuration,
    pub(crate) done: Done<M::Answer>,
}

/// The description of a whole state. The log holds it as the state of a snapshot; the [`SnapshotContent`] is stored and sent
/// apart, in chunks.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub(crate) hash: Hash,
    pub(crate) machine: StateHash,
    pub(crate) done: StateHash,
    pub(crate) bytes: u64,
    pub(crate) written: u64,
    /// The number of chunks of the content.
    pub(crate) chunks: u64,
    /// The certificate of this state, or `None` if no majority has signed it yet.
    pub(crate) proof: Option<Certificate>,
    /// One configuration certificate for each configuration after the first. With them a node that knows an earlier
    /// configuration verifies a later one. They prove themselves and are not part of the state.
    pub(crate) configuration_certificates: Vec<Certificate>,
}

/// A snapshot of the log, without its content.
pub type SnapshotDescription = log::Snapshot<Checkpoint>;

impl Checkpoint {
    /// Returns the number of chunks of the content.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }
}

/// Returns the head of the history that a snapshot covers.
pub(crate) fn head_of(snapshot: &SnapshotDescription) -> Head {
    let log::Snapshot { last, start, configuration, state } = snapshot;
    Head {
        index: last.slot,
        hash: state.hash,
        term: last.term,
        start: *start,
        voters: configuration.clone(),
        machine: state.machine,
        done: state.done,
        bytes: state.bytes,
        written: state.written,
    }
}

/// Returns the id of a snapshot: the digest of its head, which determines the content.
pub fn snapshot_id(snapshot: &SnapshotDescription) -> Option<Hash> {
    head_of(snapshot).digest()
}

/// The content of a snapshot: the rows of the machine, and the remembered transactions. A copy shares the machine's rows.
///
/// The chunks are equal on all nodes, so that a node can take them from several other nodes.
#[derive(Clone, Debug)]
pub struct SnapshotContent<M: ReplicatedMachine> {
    machine: M,
    done: DoneRows<M::Answer>,
}

impl<M: ReplicatedMachine> Default for SnapshotContent<M> {
    fn default() -> Self {
        Self { machine: M::default(), done: DoneRows::default() }
    }
}

impl<M: ReplicatedMachine> SnapshotContent<M> {
    /// Encodes the content in chunks that exceed the limit by one row at most.
    pub fn chunks(&self, limit: usize) -> impl Iterator<Item = Vec<u8>> {
        let of_part = |part: u8| {
            move |mut chunk: Vec<u8>| {
                chunk.push(part);
                chunk
            }
        };
        self.machine.chunks(limit).map(of_part(MACHINE)).chain(self.done.chunks(limit).map(of_part(DONE)))
    }

    /// Adds the next chunk. Returns an error if it cannot be decoded.
    pub fn add_chunk(&mut self, chunk: &[u8]) -> Result<(), BadSnapshot> {
        let bad = || BadSnapshot::new("ledger", "a chunk cannot be decoded");
        match chunk.split_last() {
            Some((&MACHINE, chunk)) => self.machine.add_chunk(chunk),
            Some((&DONE, chunk)) => self.done.add_chunk(chunk).ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

/// The last byte of a chunk: the part that it belongs to.
const MACHINE: u8 = 0;
const DONE: u8 = 1;

/// The reason why an entry is not the next one. The state has not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Divergence {
    /// The entry belongs to another index.
    #[error("the entry has index {found}, but the next index is {next}: fetch the missing entries")]
    Gap {
        /// The next index of the state.
        next: Slot,
        /// The index of the entry.
        found: Slot,
    },
    /// The entry follows another history.
    #[error("the entry at {0} continues another history: fetch it from another node")]
    Fork(Slot),
    /// The transaction of the entry is already in the history.
    #[error(
        "the transaction of the entry at {0} is already in the history: the leader that proposed it is faulty"
    )]
    Twice(Slot),
    /// The diff does not fit the state.
    #[error(transparent)]
    DiffMismatch(#[from] DiffMismatch),
    /// The diff produces a state whose hash differs from the hash in the entry.
    #[error("the entry at {0} produces a state with another hash than it states: fetch it from another node")]
    OtherState(Slot),
    /// The content of a snapshot does not have the hashes of its head.
    #[error("the snapshot at {0} has another content than its head states: fetch it from another node")]
    OtherContent(Slot),
}

impl<M: ReplicatedMachine> State<M> {
    /// Creates the state before the first entry, with these voters.
    pub fn new(voters: Configuration, dedup: DedupLimits) -> Self {
        let (machine, index, hash) = (M::default(), Slot(0), Hash::default());
        let (term, start, done) = (Term::none(), Slot(1), Done::new(dedup));
        Self { machine, index, hash, written: 0, term, start, voters, done }
    }

    /// Returns the machine in its current state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the index of the last applied entry.
    pub fn index(&self) -> Slot {
        self.index
    }

    /// Returns the hash of the last applied entry, which covers all earlier entries.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the configuration that decides the next entry.
    pub fn voters(&self) -> &Configuration {
        &self.voters
    }

    /// Returns the index and the result of a transaction, or `None` if the id is unknown or forgotten.
    pub fn done(&self, tx_id: TxId) -> Option<(Slot, &Result<M::Answer, GoalError>)> {
        self.done.get(tx_id)
    }

    /// Returns the last index with a forgotten transaction: a transaction that committed at a later index is known.
    pub fn forgotten(&self) -> Slot {
        self.done.forgotten()
    }

    /// Applies the next entry.
    pub fn apply(&mut self, slot: Slot, entry: &LogEntry<M>) -> Result<(), Divergence> {
        let mut over = M::Overlay::default();
        let link = self.fits(slot, entry)?;
        if let EntryPayload::Value(value) = &entry.payload {
            self.machine.stage(&mut over, value.diff.clone())?;
        }
        self.settle(slot, link, entry, &mut over)
    }

    /// Applies the next entry, whose diff is the oldest diff of this overlay.
    pub(crate) fn settle_oldest(
        &mut self,
        slot: Slot,
        entry: &LogEntry<M>,
        over: &mut M::Overlay,
    ) -> Result<(), Divergence> {
        let link = self.fits(slot, entry)?;
        let EntryPayload::Value(value) = &entry.payload else { return self.settle(slot, link, entry, over) };
        self.machine.commit_oldest(over)?;
        if self.machine.hash(&M::Overlay::default()) != value.state_hash {
            return Err(Divergence::OtherState(slot));
        }
        self.advance(slot, link, entry);
        Ok(())
    }

    fn settle(
        &mut self,
        slot: Slot,
        link: (Hash, u64),
        entry: &LogEntry<M>,
        over: &mut M::Overlay,
    ) -> Result<(), Divergence> {
        if let EntryPayload::Value(value) = &entry.payload {
            if self.machine.hash(over) != value.state_hash {
                return Err(Divergence::OtherState(slot));
            }
            self.machine.commit_oldest(over)?;
        }
        self.advance(slot, link, entry);
        Ok(())
    }

    /// Checks that this is the next entry, and returns its hash and its size.
    fn fits(&self, slot: Slot, entry: &LogEntry<M>) -> Result<(Hash, u64), Divergence> {
        let next = self.index.next();
        if slot != next {
            return Err(Divergence::Gap { next, found: slot });
        }
        if let EntryPayload::Value(value) = &entry.payload {
            if value.index != slot {
                return Err(Divergence::Gap { next, found: value.index });
            }
            if value.prev_hash != self.hash || value.term != entry.term {
                return Err(Divergence::Fork(slot));
            }
            if self.done.get(value.tx_id).is_some() {
                return Err(Divergence::Twice(slot));
            }
        }
        link_sized(self.hash, slot, entry).ok_or(Divergence::Fork(slot))
    }

    fn advance(&mut self, slot: Slot, (hash, bytes): (Hash, u64), entry: &LogEntry<M>) {
        (self.index, self.hash, self.term) = (slot, hash, entry.term);
        self.written = self.written.saturating_add(bytes);
        match &entry.payload {
            EntryPayload::Value(value) => {
                self.done.add(TxPosition::only(slot), value.tx_id, value.result.clone());
            }
            EntryPayload::Configuration(voters) => (self.start, self.voters) = (slot.next(), voters.clone()),
            EntryPayload::NoOp => {}
        }
    }

    /// Returns the description of the whole state, without a proof, and its content.
    pub(crate) fn checkpoint(&self) -> (Checkpoint, SnapshotContent<M>) {
        let Head { hash, machine, done, bytes, written, .. } = self.head();
        let checkpoint = Checkpoint { hash, machine, done, bytes, written, ..Checkpoint::default() };
        (checkpoint, SnapshotContent { machine: self.machine.clone(), done: self.done.rows() })
    }

    /// Returns the approximate size of the state, in bytes: equal on all nodes at the same index.
    pub(crate) fn bytes(&self) -> u64 {
        self.machine.bytes(&M::Overlay::default()).saturating_add(self.done.bytes())
    }

    /// Returns the head of the applied history.
    pub fn head(&self) -> Head {
        Head {
            index: self.index,
            hash: self.hash,
            term: self.term,
            start: self.start,
            voters: self.voters.clone(),
            machine: self.machine.hash(&M::Overlay::default()),
            done: self.done.hash(),
            bytes: self.bytes(),
            written: self.written,
        }
    }

    /// Restores the state from a snapshot of the log and its content. A content with another head is rejected.
    pub(crate) fn restore(
        snapshot: &SnapshotDescription,
        content: SnapshotContent<M>,
        dedup: DedupLimits,
    ) -> Result<Self, Divergence> {
        let index = snapshot.last.slot;
        if index == Slot(0) {
            return Ok(Self::new(snapshot.configuration.clone(), dedup));
        }
        let state = Self::of(snapshot, content, dedup)?;
        if state.head() == head_of(snapshot) { Ok(state) } else { Err(Divergence::OtherContent(index)) }
    }

    /// Returns the state with this content, which may have another head than the snapshot.
    pub(crate) fn of(
        snapshot: &SnapshotDescription,
        SnapshotContent { machine, done }: SnapshotContent<M>,
        dedup: DedupLimits,
    ) -> Result<Self, Divergence> {
        let log::LogId { slot: index, term } = snapshot.last;
        let (start, voters) = (snapshot.start, snapshot.configuration.clone());
        let done = Done::of(done, index, dedup).ok_or(Divergence::OtherContent(index))?;
        let log::Snapshot { state: Checkpoint { hash, written, .. }, .. } = *snapshot;
        Ok(Self { machine, index, hash, written, term, start, voters, done })
    }
}

#[cfg(test)]
mod tests {
    use holdoff_paxos::NodeId;
    use holdoff_paxos::log::Term;

    use super::*;
    use crate::entry::{LogEntry, Transaction, link};
    use crate::machine::{Command, Facts, Key, KeyValue, Overlay, StateMachine, Value};

    fn voters() -> Configuration {
        Configuration::new([NodeId(1)]).unwrap()
    }

    fn term() -> Term {
        Term::new(Slot(1), 1, NodeId(1))
    }

    /// Returns the next entry, as a leader would create it.
    fn next(state: &State<KeyValue>, tx_id: u128, command: Command) -> LogEntry<KeyValue> {
        let goal = vec![command];
        let mut over = Overlay::default();
        let ran = state.machine.execute(&over, &goal);
        let (diff, result) = match ran {
            Ok((diff, answer)) => (diff, Ok(answer)),
            Err(failed) => (crate::machine::Diff::default(), Err(failed)),
        };
        state.machine.stage(&mut over, diff.clone()).unwrap();
        let state_hash = state.machine.hash(&over);
        let (index, term, prev_hash, tx_id) = (state.index.next(), term(), state.hash, TxId(tx_id));
        let entry = Transaction { index, term, prev_hash, tx_id, goal, diff, result, state_hash };
        log::Entry { term, payload: EntryPayload::Value(entry) }
    }

    fn add(by: i64) -> Command {
        Command::Increment(Key::new("a").unwrap(), by)
    }

    fn with_one() -> State<KeyValue> {
        let mut state = State::new(voters(), DedupLimits::default());
        state.apply(Slot(1), &log::Entry { term: term(), payload: EntryPayload::NoOp }).unwrap();
        let entry = next(&state, 1, add(5));
        state.apply(Slot(2), &entry).unwrap();
        state
    }

    fn changed(
        entry: &LogEntry<KeyValue>,
        change: impl FnOnce(&mut crate::TransactionOf<KeyValue>),
    ) -> LogEntry<KeyValue> {
        let mut entry = entry.clone();
        let EntryPayload::Value(value) = &mut entry.payload else { unreachable!() };
        change(value);
        entry
    }

    #[test]
    fn only_the_next_entry_of_the_same_history_is_applied() {
        let mut state = with_one();
        let before = (state.index, state.hash, state.machine.clone());
        let entry = next(&state, 2, add(1));
        let refused = [
            (
                Slot(4),
                entry.clone(),
                "the entry has index 4, but the next index is 3: fetch the missing entries",
            ),
            (
                Slot(2),
                entry.clone(),
                "the entry has index 2, but the next index is 3: fetch the missing entries",
            ),
            (
                Slot(3),
                changed(&entry, |value| value.index = Slot(4)),
                "the entry has index 4, but the next index is 3: fetch the missing entries",
            ),
            (
                Slot(3),
                changed(&entry, |value| value.prev_hash = Hash::default()),
                "the entry at 3 continues another history: fetch it from another node",
            ),
            (
                Slot(3),
                changed(&entry, |value| value.term = Term::none()),
                "the entry at 3 continues another history: fetch it from another node",
            ),
            (
                Slot(3),
                changed(&entry, |value| value.tx_id = TxId(1)),
                "the transaction of the entry at 3 is already in the history: the leader that proposed it is faulty",
            ),
            (
                Slot(3),
                changed(&entry, |value| value.diff = crate::machine::Diff::default()),
                "the entry at 3 produces a state with another hash than it states: fetch it from another node",
            ),
        ];
        for (slot, entry, why) in refused {
            assert_eq!(state.apply(slot, &entry).unwrap_err().to_string(), why);
            assert_eq!((state.index, state.hash, state.machine.clone()), before);
        }
        state.apply(Slot(3), &entry).unwrap();
        assert_eq!(state.done(TxId(2)), Some((Slot(3), &Ok(vec![Some(Value::from(6))]))));
    }

    #[test]
    fn the_hash_covers_every_field() {
        let state = with_one();
        let entry = next(&state, 2, add(1));
        let hash = |entry: &LogEntry<KeyValue>| link(state.hash, Slot(3), entry).unwrap();
        let other = next(&state, 2, add(2));
        let EntryPayload::Value(other) = other.payload else { unreachable!() };
        let changes = [
            changed(&entry, |value| value.index = Slot(9)),
            changed(&entry, |value| value.term = Term::none()),
            changed(&entry, |value| value.prev_hash = Hash::default()),
            changed(&entry, |value| value.tx_id = TxId(9)),
            changed(&entry, |value| value.goal = other.goal.clone()),
            changed(&entry, |value| value.diff = other.diff.clone()),
            changed(&entry, |value| value.result = other.result.clone()),
            changed(&entry, |value| value.result = Err(GoalError::NoMatch)),
            changed(&entry, |value| value.state_hash = other.state_hash),
            log::Entry { term: Term::none(), payload: entry.payload.clone() },
        ];
        for changed in &changes {
            assert_ne!(hash(changed), hash(&entry), "{changed:?}");
        }
        assert_ne!(link(state.hash, Slot(4), &entry), Some(hash(&entry)));
        assert_ne!(link(Hash::default(), Slot(3), &entry), Some(hash(&entry)));
    }

    #[test]
    fn a_failed_goal_takes_an_index_and_changes_nothing() {
        let mut state = with_one();
        let before = state.machine.clone();
        let entry = next(&state, 2, add(i64::MAX));
        state.apply(Slot(3), &entry).unwrap();
        assert_eq!((state.index, &state.machine), (Slot(3), &before));
        assert!(matches!(state.done(TxId(2)), Some((Slot(3), Err(GoalError::NoResult(_))))));
    }

    #[test]
    fn a_checkpoint_contains_the_whole_state() {
        let state = with_one();
        let (last, configuration) = (log::LogId { slot: state.index, term: term() }, voters());
        let (checkpoint, content) = state.checkpoint();
        let snapshot = log::Snapshot { last, start: Slot(1), configuration, state: checkpoint };
        let mut read = SnapshotContent::default();
        let chunks: Vec<_> = content.chunks(10).collect();
        chunks.iter().try_for_each(|chunk| read.add_chunk(chunk)).unwrap();
        let mut restored = State::<KeyValue>::restore(&snapshot, read, DedupLimits::default()).unwrap();
        assert_eq!(format!("{restored:?}"), format!("{state:?}"));
        let again = next(&state, 1, add(1));
        assert_eq!(restored.apply(Slot(3), &again), Err(Divergence::Twice(Slot(3))));
        for missing in 0..chunks.len() {
            let mut read = SnapshotContent::default();
            for (_, chunk) in chunks.iter().enumerate().filter(|(number, _)| *number != missing) {
                read.add_chunk(chunk).unwrap();
            }
            let restored = State::<KeyValue>::restore(&snapshot, read, DedupLimits::default());
            assert_eq!(restored.unwrap_err(), Divergence::OtherContent(Slot(2)), "without chunk {missing}");
        }
    }

    #[test]
    fn a_state_of_facts_applies_entries() {
        let mut state = State::<Facts>::new(voters(), DedupLimits::default());
        state.apply(Slot(1), &log::Entry { term: term(), payload: EntryPayload::NoOp }).unwrap();
        assert_eq!(state.index(), Slot(1));
    }
}
