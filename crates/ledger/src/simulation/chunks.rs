//! The chunks of snapshots on a simulated disk, and the outputs of a node that concern them.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdoff_sim::kernel::SimRng;
use holdoff_testbed::fault::is_injected;

use super::node::options;
use crate::ledger::faulty::LedgerFault;
use crate::machine::KeyValue;
use crate::state::snapshot_id;
use crate::{Hash, IncompleteSnapshot, Input, Recovered, SnapshotContent, SnapshotDescription, Store};

/// The chunks of snapshots on a disk, and the description of the snapshot that the node receives.
#[derive(Clone, Default)]
pub(super) struct Chunks {
    chunks: BTreeMap<(Hash, u64), Bytes>,
    incomplete: Option<SnapshotDescription>,
}

impl Chunks {
    pub(super) fn put(&mut self, snapshot: Hash, number: u64, bytes: Bytes) {
        self.chunks.insert((snapshot, number), bytes);
    }

    /// Stores a chunk from another node. The injected defect ignores to which snapshot it belongs.
    pub(super) fn put_received(&mut self, snapshot: Hash, number: u64, bytes: Bytes) {
        self.put(if is_injected(LedgerFault::MixChunks) { Hash::default() } else { snapshot }, number, bytes);
    }

    pub(super) fn get(&self, snapshot: Hash, number: u64) -> Option<Bytes> {
        let mixed = is_injected(LedgerFault::MixChunks).then(|| self.chunks.get(&(Hash::default(), number)));
        let chunk = self.chunks.get(&(snapshot, number)).or(mixed.flatten());
        // A torn chunk is empty: its checksum does not match.
        chunk.filter(|bytes| !bytes.is_empty()).cloned()
    }

    pub(super) fn expect(&mut self, snapshot: Option<SnapshotDescription>) {
        self.incomplete = snapshot;
    }

    /// Loads the content of a snapshot.
    pub(super) fn load(&self, snapshot: Hash, chunks: u64) -> Input<KeyValue> {
        // The injected defect misses all chunks except the first.
        let chunks = if is_injected(LedgerFault::AdoptIncomplete) { chunks.min(1) } else { chunks };
        let chunks: Result<Vec<_>, _> =
            (0..chunks).map(|number| self.get(snapshot, number).ok_or(number)).collect();
        let loaded = chunks.map(|chunks| {
            let mut content = SnapshotContent::default();
            drop(chunks.iter().try_for_each(|chunk| content.add_chunk(chunk)));
            Box::new(content)
        });
        Input::SnapshotLoaded { snapshot, loaded }
    }

    /// Returns the content of the whole disk, as a restarted node finds it.
    pub(super) fn recover(&self, store: Store<KeyValue>) -> Recovered<KeyValue> {
        let mut content = SnapshotContent::default();
        if let Some(id) = snapshot_id(store.snapshot()).filter(|_| store.snapshot().state.chunks > 0) {
            for number in 0..store.snapshot().state.chunks {
                // A node does not recognize the state without this chunk.
                _ = self.get(id, number).map(|chunk| content.add_chunk(&chunk));
            }
        }
        let incomplete = self.incomplete.clone().map(|snapshot| {
            let id = snapshot_id(&snapshot).unwrap();
            let missing = (0..snapshot.state.chunks).find(|number| self.get(id, *number).is_none());
            IncompleteSnapshot { chunks: missing.unwrap_or(snapshot.state.chunks), snapshot }
        });
        Recovered { store, content, incomplete, refounded: None }
    }

    /// Deletes the chunks of all snapshots except the log's, the one that is received, and this one.
    pub(super) fn delete_unused(&mut self, store: &Store<KeyValue>, saved: Option<Hash>) {
        let kept = [snapshot_id(store.snapshot()), self.incomplete.as_ref().and_then(snapshot_id), saved];
        self.chunks.retain(|(id, _), _| kept.contains(&Some(*id)) || *id == Hash::default());
    }

    /// Loses chunks that are not part of the log's snapshot yet: the last ones, or a part of one. Returns whether a chunk
    /// was torn.
    pub(super) fn crash(&mut self, store: &Store<KeyValue>, rng: &mut SimRng) -> bool {
        let current = snapshot_id(store.snapshot());
        let mut ids: Vec<_> = self.chunks.keys().copied().filter(|(id, _)| Some(*id) != current).collect();
        let lost = usize::try_from(rng.between(0, 3)).unwrap().min(ids.len());
        for key in ids.split_off(ids.len() - lost) {
            self.chunks.remove(&key);
        }
        let torn = ids.pop().filter(|_| rng.happens(0.5));
        torn.is_some_and(|key| self.chunks.insert(key, Bytes::new()).is_some())
    }
}

/// Encodes the content of a snapshot.
pub(super) fn encode(content: &SnapshotContent<KeyValue>) -> Vec<Bytes> {
    content.chunks(options().chunk_bytes).map(Bytes::from).collect()
}
