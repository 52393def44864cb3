//! What stands in the history, and the hash that chains it.

use std::fmt::{self, Debug};

use holdoff_paxos::log::{self, Payload, Term};
use holdoff_paxos::{Slot, planted};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::{Failed, Machine, StateHash};

const ENTRY: &str = "holdoff ledger v1: one entry";
const PLACE: &str = "holdoff ledger v1: a place and all before it";

/// A transaction's name, given by whoever wants it and never given twice: the same name is the same transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TxId(pub u128);

/// As it is written everywhere: in 32 hexadecimal digits.
impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The hash of an entry, which covers all entries before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Hash(pub(crate) [u8; 32]);

impl Hash {
    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What can be told, stored and compared.
pub trait Part: Clone + PartialEq + Debug + Serialize + DeserializeOwned {}

impl<T: Clone + PartialEq + Debug + Serialize + DeserializeOwned> Part for T {}

/// A machine whose goals, diffs and answers can stand in a history.
pub trait Replicated: Machine<Goal: Part, Diff: Part + Default, Answer: Part> {}

impl<M: Machine<Goal: Part, Diff: Part + Default, Answer: Part>> Replicated for M {}

/// A goal, and what came of it where it was run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry<G, D, A> {
    /// Its place: the slot of the log that it stands in.
    pub index: Slot,
    /// In whose term it was written. Whoever takes it over leaves that as it is.
    pub term: Term,
    /// The hash of the entry before it.
    pub prev_hash: Hash,
    /// The transaction.
    pub tx_id: TxId,
    /// What was wanted.
    pub goal: G,
    /// What it changed: nothing, if it failed.
    pub diff: D,
    /// Whether it succeeded, and what it answered or why it failed.
    pub result: Result<A, Failed>,
    /// The hash of the machine's state after it.
    pub state_hash: StateHash,
}

/// An entry of this machine's history.
pub type Value<M> = Entry<<M as Machine>::Goal, <M as Machine>::Diff, <M as Machine>::Answer>;

/// What stands in a slot of the log: an entry, a barrier, or who decides from here on.
pub type Logged<M> = log::Entry<Value<M>>;

/// The hash of what stands in a slot on top of all before it. None if it cannot be written down.
///
/// A barrier and a change of who decides take a place in the chain like everything else.
pub(crate) fn link<G: Part, D: Part, A: Part>(
    before: Hash,
    slot: Slot,
    entry: &log::Entry<Entry<G, D, A>>,
) -> Option<Hash> {
    Some(chain(before, slot, written(entry)?.0))
}

/// The hash of a place, by the hash of what stands there.
pub(crate) fn chain(before: Hash, slot: Slot, here: Hash) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(PLACE);
    hasher.update(&before.0).update(&slot.0.to_le_bytes()).update(&here.0);
    Hash(*hasher.finalize().as_bytes())
}

/// The hash of an entry by itself, and how many bytes it has.
///
/// It is made of the bytes that postcard's wire format, which is specified and fixed, gives these types.
pub(crate) fn written<G: Part, D: Part, A: Part>(
    entry: &log::Entry<Entry<G, D, A>>,
) -> Option<(Hash, usize)> {
    let bytes = match &entry.payload {
        Payload::Value(it) if planted!(HashWithoutDiff) => {
            postcard::to_stdvec(&(it.index, it.term, it.prev_hash, it.tx_id, &it.goal, &it.result))
        }
        _ => postcard::to_stdvec(entry),
    };
    let bytes = bytes.ok()?;
    let mut hasher = blake3::Hasher::new_derive_key(ENTRY);
    Some((Hash(*hasher.update(&bytes).finalize().as_bytes()), bytes.len()))
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
