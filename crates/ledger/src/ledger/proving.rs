//! Whole states that a certificate proves, instead of entries.
//!
//! All nodes take their snapshots at the same indices, so that a majority signs the same snapshot. The log replaces
//! entries with a snapshot when the snapshot is signed and far enough back. The receiver of a state must know which
//! voters to trust: the nodes keep one certificate for each configuration, a configuration certificate. With these
//! certificates a node that knows an earlier configuration verifies the later ones, one after another.

use std::collections::BTreeMap;

use holdoff_paxos::log::EntryPayload;
use holdoff_paxos::{Configuration, NodeId, Slot, Tally, log};

use super::{Ledger, Message, Output, Refounding};
use crate::certificate::{Certificate, Head, Notary};
use crate::entry::{Hash, ReplicatedMachine, link};
use crate::state::{Checkpoint, SnapshotContent, SnapshotDescription, head_of};

/// The maximum number of times that the interval between two snapshots doubles.
const MAX_SNAPSHOT_SHIFT: u32 = 6;

pub(super) struct Proofs<M: ReplicatedMachine> {
    /// The configuration certificates, by the first index of their configuration.
    certificates: BTreeMap<Slot, Certificate>,
    draft: Option<Draft<M>>,
    /// The first index and the voter of the configuration that the last recovery has founded.
    refounded: Option<(Slot, Configuration)>,
    /// The first index of the current configuration, and the voters that keep its configuration certificate.
    keepers: (Slot, Tally),
}

/// The snapshot that will replace entries of the log: when its content is on disk, and when it is signed and far enough
/// back, unless a caller requests it at once.
struct Draft<M: ReplicatedMachine> {
    head: Head,
    state: Checkpoint,
    /// `None` if the content is on disk.
    content: Option<SnapshotContent<M>>,
    is_urgent: bool,
}

impl<M: ReplicatedMachine> Proofs<M> {
    /// Restores the configuration certificates of an earlier incarnation.
    pub(super) fn of(checkpoint: &Checkpoint, refounded: Option<Refounding>) -> Self {
        let founded = |it: Refounding| Some((it.start, Configuration::new([it.by]).ok()?));
        let refounded = refounded.and_then(founded);
        let certificates = &checkpoint.configuration_certificates;
        let certificates = certificates.iter().map(|it| (it.head.start, it.clone())).collect();
        Self { certificates, draft: None, refounded, keepers: (Slot(0), Tally::default()) }
    }

    /// Returns true if this head is the head of a snapshot that waits for its certificate.
    pub(super) fn awaits(&self, head: &Head) -> bool {
        self.unsigned() == Some(head)
    }

    pub(super) fn unsigned(&self) -> Option<&Head> {
        self.draft.as_ref().filter(|draft| draft.state.proof.is_none()).map(|draft| &draft.head)
    }

    /// Returns the first index of the latest configuration whose certificate this node keeps.
    pub(super) fn latest(&self) -> Slot {
        self.certificates.keys().next_back().copied().unwrap_or(Slot(1))
    }

    fn list(&self) -> Vec<Certificate> {
        self.certificates.values().cloned().collect()
    }
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Takes a snapshot for the log, at the indices at which all nodes do so: each number of entries, and each number of
    /// bytes. Takes none while the content of the previous one is not on disk.
    ///
    /// `before` is the size of all entries before the last one.
    pub(super) fn take_snapshot(&mut self, before: u64) {
        let (entries, bytes) = self.every();
        let is_due =
            self.state.index.0.is_multiple_of(entries) || before / bytes != self.state.written / bytes;
        if self.divergence.is_some() || !is_due {
            return;
        }
        self.compact_to_draft();
        if self.proofs.draft.is_none() {
            self.draft(None);
            self.sign_head();
        }
    }

    /// Begins a snapshot of the current state. With a proof it replaces entries as soon as its content is on disk.
    fn draft(&mut self, proof: Option<Certificate>) {
        let (head, (state, content)) = (self.state.head(), self.state.checkpoint());
        let Some(id) = head.digest() else { return };
        let is_urgent = proof.is_some();
        let state = Checkpoint { proof, ..state };
        self.proofs.draft = Some(Draft { head, state, content: Some(content), is_urgent });
        // The chunks of earlier snapshots may be deleted now: the record of the log's snapshot must be on disk.
        self.step.hold(Output::SaveSnapshot(id));
    }

    /// Returns the content of the snapshot that this node is taking, if it has this id and is not on disk yet.
    pub fn unsaved_snapshot(&self, id: Hash) -> Option<SnapshotContent<M>> {
        let draft = self.proofs.draft.as_ref().filter(|draft| draft.head.digest() == Some(id))?;
        draft.content.clone()
    }

    /// Notes that the content of a snapshot is on disk.
    pub(super) fn handle_saved(&mut self, id: Hash, chunks: u64) {
        let is_it = |draft: &&mut Draft<M>| draft.head.digest() == Some(id);
        let Some(draft) = self.proofs.draft.as_mut().filter(is_it) else { return };
        (draft.content, draft.state.chunks) = (None, chunks);
        if draft.is_urgent {
            self.compact_to_draft();
        }
    }

    /// Returns the number of indices, and of bytes, between two snapshots. It grows with the state, so that a large state is not written
    /// again and again. It depends on the replicated state only: voters sign snapshots that they take themselves.
    fn every(&self) -> (u64, u64) {
        let shift = (self.state.bytes() / self.options.snapshot_bytes.max(1))
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        let shift = shift.min(MAX_SNAPSHOT_SHIFT);
        ((2 * self.options.kept as u64).max(1) << shift, (self.options.kept_bytes as u64).max(1) << shift)
    }

    /// Replaces entries of the log with the snapshot when it is signed and `kept` indices or `kept_bytes` back, so that entries remain
    /// for nodes that are slightly behind. A node that does not vote receives no signatures and does not wait for
    /// them.
    pub(super) fn compact(&mut self) {
        let Some(Draft { head, state, .. }) = &self.proofs.draft else { return };
        let is_back = self.state.index.0 >= head.index.0.saturating_add(self.options.kept as u64)
            || self.state.written >= head.written.saturating_add(self.options.kept_bytes as u64);
        let waits = state.proof.is_none() && self.state.voters.contains(self.me);
        if is_back && !waits {
            self.compact_to_draft();
        }
    }

    /// Replaces all decided entries with a snapshot, at a caller's request, if a majority has signed the current head.
    pub(super) fn compact_now(&mut self) {
        self.draft_signed_head();
        self.step.hold(Output::Compacted(self.log.store().snapshot().last.slot));
    }

    /// Begins a snapshot of the current state if a majority has signed its head, unless the content of another snapshot is
    /// being written.
    fn draft_signed_head(&mut self) {
        let base = self.log.store().snapshot().last.slot;
        let is_writing = self.proofs.draft.as_ref().is_some_and(|draft| draft.content.is_some());
        let proof = self.certificates.get(&self.state.index).filter(|_| self.state.index > base).cloned();
        if let Some(proof) = proof.filter(|proof| !is_writing && proof.head == self.state.head()) {
            self.draft(Some(proof));
        }
    }

    fn compact_to_draft(&mut self) {
        if let Some(Draft { head, mut state, .. }) =
            self.proofs.draft.take_if(|draft| draft.content.is_none())
        {
            state.configuration_certificates = self.proofs.list();
            self.log(log::Input::Compact { through: head.index, state });
        }
    }

    /// Keeps a verified certificate if it proves the snapshot or a new configuration.
    pub(super) fn keep_proof(&mut self, certificate: &Certificate) {
        if let Some(draft) = self.proofs.draft.as_mut().filter(|draft| draft.head == certificate.head) {
            draft.state.proof.get_or_insert_with(|| certificate.clone());
        }
        let start = certificate.head.start;
        if start >= self.state.start && start > self.proofs.latest() {
            self.proofs.certificates.insert(start, certificate.clone());
            self.store_configuration_certificates();
            self.sign_head();
        }
    }

    /// Stores the configuration certificates: other nodes rely on them, also in a later incarnation.
    fn store_configuration_certificates(&mut self) {
        let base = self.log.store().snapshot();
        let certificates = self.proofs.list();
        if base.state.configuration_certificates != certificates {
            let mut snapshot = base.clone();
            snapshot.state.configuration_certificates = certificates;
            self.log(log::Input::RestoreSnapshot(snapshot));
        }
    }

    /// Merges the configuration certificates after the log has adopted another snapshot. The snapshot may contain new
    /// ones, or lack known ones.
    pub(super) fn merge_configuration_certificates(&mut self) {
        self.proofs.draft = None;
        for certificate in &self.log.store().snapshot().state.configuration_certificates {
            self.proofs.certificates.entry(certificate.head.start).or_insert_with(|| certificate.clone());
        }
        self.store_configuration_certificates();
    }

    /// Returns true if a majority of the voters in the head has signed the certificate, and the configurations known
    /// at this node lead to these voters.
    pub(super) fn believes(&mut self, certificate: &Certificate) -> bool {
        let is_genuine = certificate.is_genuine(&self.notary);
        self.counts.forged_certificates += u64::from(!is_genuine);
        is_genuine && self.leads_to(certificate)
    }

    fn leads_to(&self, certificate: &Certificate) -> bool {
        let head = &certificate.head;
        if head.start <= self.state.start {
            // The earlier voters are no longer known, but the head that they were asked to sign is.
            return self.proofs.awaits(head)
                || (head.start, &head.voters) == (self.state.start, &self.state.voters);
        }
        certificate.continues(self.voters_at(head.start)) || self.is_of_recovery(certificate)
    }

    /// Returns true if the certificate is of the configuration that the last recovery has founded, or of the next one.
    pub(super) fn is_of_recovery(&self, certificate: &Certificate) -> bool {
        let founded = self.proofs.refounded.as_ref();
        founded
            .is_some_and(|(start, voters)| certificate.head.start >= *start && certificate.continues(voters))
    }

    /// Returns the latest known configuration that starts at or before this index.
    fn voters_at(&self, start: Slot) -> &Configuration {
        let known = self.proofs.certificates.range(..=start).next_back();
        let later = known.filter(|(known, _)| **known > self.state.start);
        later.map_or(&self.state.voters, |(_, certificate)| &certificate.head.voters)
    }

    /// Returns the latest known configuration.
    pub(super) fn latest_voters(&self) -> &Configuration {
        self.voters_at(Slot(u64::MAX))
    }

    /// Returns true if this node keeps the certificate of the current configuration. The first configuration needs
    /// none, because all nodes start with it.
    fn has_configuration_certificate(&self) -> bool {
        self.state.start == Slot(1) || self.proofs.certificates.contains_key(&self.state.start)
    }

    /// Counts a voter that keeps the certificate of the current configuration, or sends it to a voter that does not.
    pub(super) fn count_keeper(&mut self, node: NodeId, latest_configuration: Slot) {
        let (start, keepers) = &mut self.proofs.keepers;
        if *start != self.state.start {
            (*start, *keepers) = (self.state.start, Tally::default());
        }
        if latest_configuration >= *start {
            keepers.count(node, &self.state.voters);
        } else if let Some(certificate) =
            self.proofs.certificates.get(start).cloned().filter(|_| node != self.me)
        {
            self.send_at_once(node, Message::Certificate(certificate));
        }
    }

    /// Returns true if a majority of the voters keeps the certificate of the current configuration. Only then may the
    /// leader change the voters.
    pub(super) fn is_certificate_kept_by_majority(&self) -> bool {
        let (start, keepers) = self.proofs.keepers;
        self.state.start == Slot(1) || (start == self.state.start && keepers.is_quorum(&self.state.voters))
    }

    /// As the leader: sends the certificate of the current configuration until a majority keeps it.
    pub(super) fn send_configuration_certificate(&mut self) {
        if self.log.leads().is_none() || self.is_certificate_kept_by_majority() {
            return;
        }
        self.sign_head();
        let Some(certificate) = self.proofs.certificates.get(&self.state.start).cloned() else { return };
        for voter in self.proofs.keepers.1.missing(&self.state.voters.clone()) {
            if voter != self.me {
                self.send_at_once(voter, Message::Certificate(certificate.clone()));
            }
        }
    }

    /// Confirms to the leader that this node keeps the certificate of the current configuration.
    pub(super) fn confirm_configuration_certificate(&mut self, from: NodeId, certificate: &Certificate) {
        if certificate.head.start == self.state.start
            && self.has_configuration_certificate()
            && self.log.leader() == Some(from)
        {
            self.sign_head();
        }
    }

    /// Offers the snapshot of the log, if it is later than the requester's index and has a certificate. If it has none,
    /// begins a snapshot of the current state, if a majority has signed its head: the next snapshot may be thousands of
    /// entries away. The requester asks again.
    pub(super) fn serve_state(&mut self, to: NodeId, after: Slot) {
        let base = self.log.store().snapshot();
        if base.state.proof.is_none() {
            return self.draft_signed_head();
        }
        if base.last.slot > after {
            let mut snapshot = base.clone();
            snapshot.state.configuration_certificates = self.proofs.list();
            self.counts.states_served += 1;
            self.send_at_once(to, Message::State(snapshot));
        }
    }

    /// Handles the offer of a node that was asked for history. An offer without a valid certificate is rejected.
    pub(super) fn handle_state(&mut self, from: NodeId, snapshot: SnapshotDescription) {
        if self.leader_state.is_some() || snapshot.last.slot <= self.state.index {
            return;
        }
        for certificate in &snapshot.state.configuration_certificates {
            let is_later = certificate.head.start > self.state.start.max(self.proofs.latest());
            if is_later && self.believes(certificate) {
                self.proofs.certificates.insert(certificate.head.start, certificate.clone());
            }
        }
        let is_proven = match &snapshot.state.proof {
            Some(proof) => proof.head == head_of(&snapshot) && self.believes(proof),
            None => false,
        };
        if is_proven {
            self.handle_offer(from, snapshot);
        } else {
            self.reject_history();
        }
    }
}

/// The result of verifying the history that a node keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verification {
    /// The index of the first verified entry.
    pub first: Slot,
    /// The index of the last verified entry.
    pub last: Slot,
    /// The highest index whose certificate carries valid signatures of a majority.
    pub certified: Slot,
    /// The first mismatch, if any.
    pub mismatch: Option<String>,
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Verifies the entries that this node keeps: each follows the previous one, the last one has the hash of the
    /// state, and the signed hash is the hash of the entry at that index.
    pub fn verify(&self) -> Verification {
        let (first, last) = (self.first_kept(), self.state.index);
        let certified = self.certificates.range(first..=last).next_back();
        let (certified, mismatch) = match self.check_hash_chain(first) {
            Err(mismatch) => (Slot(0), Some(mismatch)),
            Ok(hashes) => match certified {
                None => (Slot(0), None),
                Some((index, certificate)) => {
                    let here = hashes.iter().find(|(slot, _)| slot == index).map(|(_, hash)| *hash);
                    let is_same = here.is_none_or(|hash| hash == certificate.head.hash);
                    let is_by_voters = certificate.head.voters == self.state.voters;
                    let is_signed = is_by_voters && certificate.is_genuine(&self.notary);
                    match (is_same, is_signed) {
                        (false, _) => {
                            (Slot(0), Some(format!("a majority has signed another hash at index {index}")))
                        }
                        // Voters that have been replaced since signed it: it was valid then, and this node cannot
                        // check it now.
                        (true, false) => (Slot(0), None),
                        (true, true) => (*index, None),
                    }
                }
            },
        };
        Verification { first, last, certified, mismatch }
    }

    /// Returns the hash at each index, from the first entry on that contains the hash of its predecessor.
    fn check_hash_chain(&self, first: Slot) -> Result<Vec<(Slot, Hash)>, String> {
        let (mut slot, mut hash, mut hashes) = (first, None, Vec::new());
        for entry in &self.history {
            if let EntryPayload::Value(value) = &entry.payload {
                let before = *hash.get_or_insert(value.prev_hash);
                if before != value.prev_hash || value.index != slot {
                    return Err(format!("the entry at {slot} does not continue the entry before it"));
                }
            }
            if let Some(before) = hash {
                let here = link(before, slot, entry)
                    .ok_or_else(|| format!("the entry at {slot} cannot be encoded"))?;
                hash = Some(here);
                hashes.push((slot, here));
            }
            slot = slot.next();
        }
        match hash {
            Some(head) if head != self.state.hash => {
                Err("the hash of the state is not the hash of the last entry".to_owned())
            }
            _ => Ok(hashes),
        }
    }
}
