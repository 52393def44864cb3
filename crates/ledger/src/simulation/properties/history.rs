//! The decided history, as the first node that reached each index has it, and a replay of it.
//!
//! Hash chain: each entry continues the history before it. Atomicity: a failed goal changes nothing. Replay: each diff fits
//! the state before it.

use holdoff_paxos::log::EntryPayload;
use holdoff_paxos::{Configuration, Slot};

use super::{Checked, Violation};
use crate::entry::link;
use crate::machine::{KeyValue, Overlay, StateHash, StateMachine as _};
use crate::simulation::oracle::RunPlan;
use crate::{Hash, LogEntry, TransactionOf};

#[derive(Default)]
pub(crate) struct History {
    rows: Vec<HistoryRow>,
    replayed: KeyValue,
}

/// One index of the history.
pub(crate) struct HistoryRow {
    pub(crate) entry: LogEntry<KeyValue>,
    pub(crate) voters: Configuration,
    /// The hash of the history, and of the state.
    pub(crate) hash: Hash,
    pub(crate) state: StateHash,
}

impl History {
    pub(crate) fn head(&self) -> Slot {
        Slot(self.rows.len() as u64)
    }

    pub(crate) fn row(&self, slot: Slot) -> Option<&HistoryRow> {
        self.rows.get(usize::try_from(slot.0.checked_sub(1)?).ok()?)
    }

    /// Returns the configuration that decides the next index.
    pub(crate) fn next_voters(&self, plan: RunPlan) -> Configuration {
        self.rows.last().map_or_else(
            || plan.first_voters(),
            |row| match &row.entry.payload {
                EntryPayload::Configuration(after) => after.clone(),
                _ => row.voters.clone(),
            },
        )
    }

    /// Extends the history by an entry that these voters have decided, and replays it.
    pub(crate) fn extend(&mut self, entry: &LogEntry<KeyValue>, voters: Configuration) -> Checked {
        let slot = self.head().next();
        let before = self.rows.last().map(|row| row.hash).unwrap_or_default();
        let checked = match &entry.payload {
            EntryPayload::Value(value) => self.replay(slot, before, value),
            EntryPayload::Configuration(_) | EntryPayload::NoOp => Ok(()),
        };
        let (hash, state) = (link(before, slot, entry).unwrap(), self.replayed.hash(&Overlay::default()));
        self.rows.push(HistoryRow { entry: entry.clone(), voters, hash, state });
        checked
    }

    fn replay(&mut self, slot: Slot, before: Hash, value: &TransactionOf<KeyValue>) -> Checked {
        if value.index != slot || value.prev_hash != before {
            return Err(Violation::HashChain { slot, index: value.index });
        }
        if value.result.is_err() && !value.diff.is_empty() {
            return Err(Violation::Atomicity(slot));
        }
        self.replayed.apply(&value.diff).map_err(|mismatch| Violation::Replay { slot, mismatch })
    }
}
