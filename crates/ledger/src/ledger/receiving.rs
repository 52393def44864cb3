//! Receives whole states. A leader, or a node that was asked for history, *offers* a snapshot by its description; this node
//! then requests the content, chunk after chunk, from any node that has the same snapshot.
//!
//! | state | event | next |
//! |---|---|---|
//! | none | an offer of a later snapshot | requesting: the offer is stored, then up to `CHUNKS_IN_FLIGHT` chunks are requested |
//! | requesting | a chunk | it is stored; when it is on disk, the next one is requested, or the content is loaded if it was the last |
//! | requesting | no chunk for `resend_us` | the missing chunks are requested again; after `ATTEMPTS` times: interrupted |
//! | requesting | the source no longer has the snapshot | interrupted |
//! | interrupted, also after a restart | an offer of the same snapshot by any node | requesting, from the first missing chunk on |
//! | interrupted | an offer of another, later snapshot | requesting that one; the stored chunks are dropped |
//! | loading | the content has the head of the offer | none: the node has adopted the state |
//! | loading | a stored chunk is damaged | requesting, from that chunk on |
//! | loading | the content has another head | none: everything is dropped |

use std::collections::BTreeSet;

use holdoff_paxos::{NodeId, Slot, log};

use super::{Ledger, Message, Output};
use crate::certificate::Notary;
use crate::entry::{Hash, ReplicatedMachine};
use crate::state::{SnapshotContent, SnapshotDescription, State, snapshot_id};

/// The maximum number of chunks that are requested and not stored.
const CHUNKS_IN_FLIGHT: u64 = 4;
/// The number of requests without an answer after which a transfer is interrupted.
const ATTEMPTS: u32 = 3;
/// The maximum number of chunks that are not full: the last ones of the tables and of the remembered transactions.
const PARTS: u64 = 8;
/// The maximum size of a chunk, in bytes: the limit of all nodes, and a row that exceeds it.
const MAX_CHUNK_BYTES: usize = 4 << 20;

/// A snapshot whose content this node receives.
pub(super) struct Transfer {
    id: Hash,
    pub(super) snapshot: SnapshotDescription,
    /// The node that sends the chunks. `None` if the transfer is interrupted.
    source: Option<NodeId>,
    /// The chunks below this number are on disk.
    next: u64,
    /// Later chunks that are on disk.
    stored: BTreeSet<u64>,
    /// Chunks that are being written. A second copy is ignored: it could replace a chunk after the content has been verified.
    writing: BTreeSet<u64>,
    /// The chunks below this number are requested.
    requested: u64,
    attempts: u32,
    /// The time at which the missing chunks are requested again.
    again_us: u64,
    is_loading: bool,
}

/// A snapshot whose content is on disk in part.
#[derive(Clone, Debug)]
pub struct IncompleteSnapshot {
    /// The description of the snapshot.
    pub snapshot: SnapshotDescription,
    /// The number of chunks on disk, from the first one on.
    pub chunks: u64,
}

impl Transfer {
    pub(super) fn of(incomplete: IncompleteSnapshot) -> Option<Self> {
        let IncompleteSnapshot { snapshot, chunks: next } = incomplete;
        Some(Self {
            id: snapshot_id(&snapshot)?,
            snapshot,
            source: None,
            next,
            stored: BTreeSet::new(),
            writing: BTreeSet::new(),
            requested: next,
            attempts: 0,
            again_us: 0,
            is_loading: false,
        })
    }
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Handles the offer of a snapshot that is known to be decided.
    pub(super) fn handle_offer(&mut self, from: NodeId, snapshot: SnapshotDescription) {
        let last = snapshot.last.slot;
        // Nearly all chunks are full.
        let most = snapshot.state.bytes / (self.options.chunk_bytes as u64 / 2).max(1) + PARTS;
        let is_sound = last > self.state.index && snapshot.state.chunks <= most;
        let Some(id) = snapshot_id(&snapshot).filter(|_| is_sound) else { return };
        let known = self.transfer.as_ref();
        let is_busy = known.is_some_and(|transfer| transfer.source.is_some() || transfer.is_loading);
        if is_busy && known.is_some_and(|transfer| transfer.snapshot.last.slot > self.state.index) {
            return;
        }
        if known.is_none_or(|transfer| transfer.id != id) {
            // As in `draft`: the chunks of a snapshot that the log has just adopted stay.
            self.step.hold(Output::ExpectSnapshot(Some(Box::new(snapshot.clone()))));
            self.transfer = Transfer::of(IncompleteSnapshot { snapshot, chunks: 0 });
        } else {
            self.counts.transfers_resumed += 1;
        }
        if let Some(transfer) = &mut self.transfer {
            (transfer.source, transfer.attempts) = (Some(from), 0);
        }
        self.request_chunks_again();
    }

    /// Returns true if this node receives a snapshot now.
    pub(super) fn is_receiving(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.source.is_some() || transfer.is_loading)
    }

    /// Returns the node that sends the chunks of a snapshot to this node.
    #[cfg(test)]
    pub(crate) fn receives_from(&self) -> Option<NodeId> {
        self.transfer.as_ref().and_then(|transfer| transfer.source)
    }

    /// Requests the missing chunks from the first one on, or loads the content if no chunk is missing.
    fn request_chunks_again(&mut self) {
        let again_us = self.now_us.saturating_add(self.options.resend_us);
        if let Some(transfer) = &mut self.transfer {
            (transfer.requested, transfer.again_us) = (transfer.next, again_us);
        }
        self.request_chunks();
    }

    fn request_chunks(&mut self) {
        let Some(transfer) = self.transfer.as_mut().filter(|transfer| !transfer.is_loading) else { return };
        if transfer.next >= transfer.snapshot.state.chunks {
            transfer.is_loading = true;
            let id = transfer.id;
            self.step.at_once(Output::LoadSnapshot(id, transfer.snapshot.state.chunks));
            return;
        }
        let Some(source) = transfer.source else { return };
        let limit = (transfer.next + CHUNKS_IN_FLIGHT).min(transfer.snapshot.state.chunks);
        let (id, numbers) = (transfer.id, transfer.requested..limit);
        transfer.requested = limit.max(transfer.requested);
        for number in numbers {
            self.send_at_once(source, Message::FetchChunk { snapshot: id, number });
        }
    }

    /// Handles a chunk, or the reply that the source does not have it.
    pub(super) fn handle_chunk(&mut self, from: NodeId, id: Hash, number: u64, bytes: Option<bytes::Bytes>) {
        let again_us = self.now_us.saturating_add(self.options.resend_us);
        let is_asked = |transfer: &&mut Transfer| transfer.id == id && transfer.source == Some(from);
        let Some(transfer) = self.transfer.as_mut().filter(is_asked) else { return };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() <= MAX_CHUNK_BYTES) else {
            transfer.source = None;
            return;
        };
        let is_missing = (transfer.next..transfer.requested).contains(&number);
        let is_new = is_missing && !transfer.is_loading && !transfer.stored.contains(&number);
        if is_new && transfer.writing.insert(number) {
            (transfer.attempts, transfer.again_us) = (0, again_us);
            self.step.at_once(Output::StoreChunk { snapshot: id, number, bytes });
        }
    }

    /// Notes that a chunk is on disk.
    pub(super) fn handle_stored_chunk(&mut self, id: Hash, number: u64) {
        let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.id == id) else { return };
        transfer.writing.remove(&number);
        if transfer.is_loading || number < transfer.next || number >= transfer.requested {
            return;
        }
        transfer.stored.insert(number);
        while transfer.stored.remove(&transfer.next) {
            transfer.next += 1;
            self.counts.chunks += 1;
        }
        self.request_chunks();
    }

    /// Requests missing chunks again when they are late, and gives up a source that does not answer.
    pub(super) fn continue_transfer(&mut self) {
        let index = self.state.index;
        let Some(transfer) = &mut self.transfer else { return };
        if transfer.snapshot.last.slot <= index {
            return self.drop_transfer();
        }
        if transfer.source.is_none() || transfer.is_loading || self.now_us < transfer.again_us {
            return;
        }
        transfer.attempts += 1;
        if transfer.attempts >= ATTEMPTS {
            transfer.source = None;
        } else {
            self.request_chunks_again();
        }
    }

    fn drop_transfer(&mut self) {
        self.transfer = None;
        self.step.hold(Output::ExpectSnapshot(None));
    }

    /// Handles the loaded content of a snapshot, or the number of a damaged chunk. Adopts the state only if it has the
    /// head of the offer.
    pub(super) fn handle_loaded(&mut self, id: Hash, loaded: Result<Box<SnapshotContent<M>>, u64>) {
        let is_it = |transfer: &&mut Transfer| transfer.id == id && transfer.is_loading;
        let Some(transfer) = self.transfer.as_mut().filter(is_it) else { return };
        let content = match loaded {
            Ok(content) => *content,
            Err(damaged) => {
                (transfer.is_loading, transfer.next) = (false, damaged.min(transfer.next));
                transfer.stored.clear();
                return self.request_chunks_again();
            }
        };
        let snapshot = transfer.snapshot.clone();
        if let Ok(state) = State::restore(&snapshot, content, self.options.dedup) {
            self.transfer = None;
            self.adopt(snapshot, state);
        } else {
            self.drop_transfer();
            self.reject_history();
        }
    }

    /// Adopts a snapshot whose content may have another head than its description.
    #[cfg(test)]
    pub(super) fn adopt_unverified(&mut self, id: Hash, content: SnapshotContent<M>) {
        let Some(transfer) = self.transfer.take_if(|transfer| transfer.id == id) else { return };
        if let Ok(state) = State::of(&transfer.snapshot, content, self.options.dedup) {
            self.adopt(transfer.snapshot, state);
        }
    }

    /// Continues an interrupted transfer with another snapshot.
    #[cfg(test)]
    pub(super) fn mix_chunks(&mut self, snapshot: &SnapshotDescription) {
        if let (Some(transfer), Some(id)) = (&mut self.transfer, snapshot_id(snapshot))
            && transfer.source.is_none()
            && !transfer.is_loading
        {
            (transfer.id, transfer.snapshot) = (id, snapshot.clone());
        }
    }

    /// Replaces the state, unless this node has reached a later index meanwhile.
    pub(super) fn adopt(&mut self, snapshot: SnapshotDescription, state: State<M>) {
        if state.index <= self.state.index || state.index == Slot(0) {
            return;
        }
        self.counts.states += 1;
        self.restored = Some(state);
        self.log(log::Input::RestoreSnapshot(snapshot));
        self.restored = None;
    }
}
