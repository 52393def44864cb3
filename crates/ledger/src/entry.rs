//! The entries of the history, and the hash that chains them.

use std::fmt::{self, Debug};

use holdoff_paxos::Slot;
use holdoff_paxos::log::{self, EntrySize, Term};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(test)]
use crate::ledger::faulty::hashed_bytes;
use crate::machine::{GoalError, StateHash, StateMachine};

const ENTRY: &str = "holdoff ledger v1: one entry";
const PLACE: &str = "holdoff ledger v1: a place and all before it";

/// A transaction id. The caller chooses it and never reuses it: a repeated id is the same transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TxId(pub u128);

/// Formats the id as 32 hexadecimal digits, in every interface.
impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The hash of an entry, which covers all earlier entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Hash(pub(crate) [u8; 32]);

/// A transaction id, and the transaction's birth.
///
/// All submissions of a transaction have the same id. The birth is an index up to which the caller knows that the
/// transaction is not in the history: an index that the caller learned before it first submitted the transaction. The
/// ledger remembers a limited number of transactions, and executes only those that cannot be among the forgotten ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TxKey {
    /// The transaction id.
    pub id: TxId,
    /// The birth.
    pub birth: Slot,
}

impl TxKey {
    /// Returns the key of a transaction that never expires: after the ledger has forgotten it, a late submission executes it
    /// again. For goals whose repetition has no effect.
    pub(crate) fn never_expires(id: TxId) -> Self {
        Self { id, birth: Slot(u64::MAX) }
    }
}

impl Hash {
    /// Returns the bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A type that can be sent, stored and compared.
pub trait AppData: Clone + PartialEq + Debug + Serialize + DeserializeOwned {}

impl<T: Clone + PartialEq + Debug + Serialize + DeserializeOwned> AppData for T {}

/// A machine whose goals, diffs and answers can be part of a history.
pub trait ReplicatedMachine: StateMachine<Goal: AppData, Diff: AppData + Default, Answer: AppData> {}

impl<M: StateMachine<Goal: AppData, Diff: AppData + Default, Answer: AppData>> ReplicatedMachine for M {}

/// A goal, with the diff and the result that its execution at the leader produced.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transaction<G, D, A> {
    /// The slot of the log that holds the entry.
    pub index: Slot,
    /// The term of the leader that created the entry. A later leader that inherits the entry keeps this term.
    pub term: Term,
    /// The hash of the previous index.
    pub prev_hash: Hash,
    /// The transaction id.
    pub tx_id: TxId,
    /// The submitted goal.
    pub goal: G,
    /// The changes of the goal; empty if the goal failed.
    pub diff: D,
    /// The answer if the goal succeeded, or the reason if it failed.
    pub result: Result<A, GoalError>,
    /// The hash of the machine's state after the entry.
    pub state_hash: StateHash,
}

impl<G: Serialize, D: Serialize, A: Serialize> EntrySize for Transaction<G, D, A> {
    fn encoded_bytes(&self) -> usize {
        postcard::serialize_with_flavor(self, postcard::ser_flavors::Size::default())
            .unwrap_or(usize::MAX >> 32)
    }
}

/// An entry of this machine's history.
pub type TransactionOf<M> =
    Transaction<<M as StateMachine>::Goal, <M as StateMachine>::Diff, <M as StateMachine>::Answer>;

/// The content of a slot of the log: an entry, a no-op entry, or a configuration change.
pub type LogEntry<M> = log::Entry<TransactionOf<M>>;

/// Returns the hash of a slot, which covers its entry and all earlier slots, or `None` if the entry cannot be encoded.
///
/// No-op entries and configuration changes take an index in the hash chain like all other entries.
pub(crate) fn link<G: AppData, D: AppData, A: AppData>(
    before: Hash,
    slot: Slot,
    entry: &log::Entry<Transaction<G, D, A>>,
) -> Option<Hash> {
    link_sized(before, slot, entry).map(|(hash, _)| hash)
}

/// Returns the hash of a slot, as [`link`] does, and the encoded size of its entry in bytes.
pub(crate) fn link_sized<G: AppData, D: AppData, A: AppData>(
    before: Hash,
    slot: Slot,
    entry: &log::Entry<Transaction<G, D, A>>,
) -> Option<(Hash, u64)> {
    let (here, bytes) = written(entry)?;
    Some((chain(before, slot, here), bytes as u64))
}

/// Returns the hash of an index from the hash of the previous index and the hash of the entry alone.
pub(crate) fn chain(before: Hash, slot: Slot, here: Hash) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(PLACE);
    hasher.update(&before.0).update(&slot.0.to_le_bytes()).update(&here.0);
    Hash(*hasher.finalize().as_bytes())
}

/// Returns the hash of an entry alone and its encoded size in bytes.
///
/// The hash covers the postcard encoding of the entry. The wire format of postcard is specified and stable.
pub(crate) fn written<G: AppData, D: AppData, A: AppData>(
    entry: &log::Entry<Transaction<G, D, A>>,
) -> Option<(Hash, usize)> {
    let bytes = hashed_bytes(entry)?;
    let mut hasher = blake3::Hasher::new_derive_key(ENTRY);
    Some((Hash(*hasher.update(&bytes).finalize().as_bytes()), bytes.len()))
}

/// Returns the bytes that the hash of an entry covers: the whole entry.
#[cfg(not(test))]
fn hashed_bytes<G: AppData, D: AppData, A: AppData>(
    entry: &log::Entry<Transaction<G, D, A>>,
) -> Option<Vec<u8>> {
    postcard::to_stdvec(entry).ok()
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
