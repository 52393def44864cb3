//! Signature shares of decided heads: the voters sign, and the leader collects.

use std::collections::BTreeMap;

use holdoff_paxos::log::EntryPayload;
use holdoff_paxos::{NodeId, Slot};

use super::{Ledger, Message};
use crate::certificate::{Certificate, Head, Notary, SignatureShare};
use crate::entry::{Hash, LogEntry, ReplicatedMachine};

/// The maximum number of heads for which the leader collects signature shares at a time. It drops the oldest, because
/// a certificate of a newer head replaces them.
const MAX_COLLECTED_HEADS: usize = 64;

/// The minimum interval between two signature shares. One certificate proves all earlier entries, and a signature
/// costs more than an entry.
const SIGNING_INTERVAL_US: u64 = 20_000;

/// The signature shares of heads that no majority has signed yet.
#[derive(Default)]
pub(super) struct SignatureShares(BTreeMap<(Slot, Hash), Certificate>);

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Signs the head of the decided history, unless this node signed less than `SIGNING_INTERVAL_US` ago: then the
    /// next tick signs.
    pub(super) fn sign_head_if_due(&mut self) {
        // Other nodes wait for the certificate of a new configuration, so its head is signed at once.
        let is_value = |entry: &LogEntry<M>| matches!(entry.payload, EntryPayload::Value(_));
        let may_wait = self.history.back().is_some_and(is_value);
        if !may_wait || self.signed_us.is_none_or(|signed_us| signed_us + SIGNING_INTERVAL_US <= self.now_us)
        {
            self.sign_head();
        }
    }

    /// Signs the head of the decided history, for the leader.
    pub(super) fn sign_head(&mut self) {
        if self.log.leader().is_some() {
            self.signed_us = Some(self.now_us);
            self.sign(self.state.head());
        }
    }

    fn sign(&mut self, head: Head) {
        let Some(leader) = self.log.leader() else { return };
        if self.divergence.is_some() || !head.voters.contains(self.me) {
            return;
        }
        let Some(digest) = head.digest() else { return };
        let signature = self.notary.sign(head.index, digest);
        let share = SignatureShare { head, signature, latest_configuration: self.proofs.latest() };
        if leader == self.me {
            self.collect_share(self.me, share);
        } else {
            self.send(leader, Message::SignatureShare(share));
        }
    }

    /// Signs heads without a certificate again: an earlier signature share may have been lost.
    pub(super) fn sign_unsigned_heads(&mut self) {
        if self.certified() < self.state.index {
            self.sign_head();
        }
        if let Some(head) = self.proofs.unsigned().cloned() {
            self.sign(head);
        }
    }

    /// Returns the highest index that a majority has signed, as far as this node knows.
    pub fn certified(&self) -> Slot {
        self.certificates.keys().next_back().copied().unwrap_or_default()
    }

    /// Returns true if this node needs a certificate of this head.
    fn wants(&self, head: &Head) -> bool {
        head.index > self.certified() || self.proofs.awaits(head) || head.start > self.proofs.latest()
    }

    pub(super) fn collect_share(&mut self, from: NodeId, share: SignatureShare) {
        let SignatureShare { head, signature, latest_configuration } = share;
        let is_mine = (head.start, &head.voters) == (self.state.start, &self.state.voters);
        if self.log.leads().is_none() || !is_mine || !head.voters.contains(from) {
            return;
        }
        self.count_keeper(from, latest_configuration);
        let index = head.index;
        if index > self.state.index || !self.wants(&head) {
            return;
        }
        let Some(digest) = head.digest() else { return };
        if from != self.me && !self.notary.is_signed(from, index, digest, &signature) {
            self.counts.forged_signatures += 1;
            return;
        }
        let gathered = self
            .signature_shares
            .0
            .entry((index, digest))
            .or_insert(Certificate { head, signatures: Vec::new() });
        if gathered.signatures.iter().all(|(voter, _)| *voter != from) {
            gathered.signatures.push((from, signature));
        }
        if gathered.is_by_majority() {
            let certificate = gathered.clone();
            self.signature_shares.0.remove(&(index, digest));
            self.send_certificate(&certificate);
            let proofs = &self.proofs;
            self.signature_shares.0.retain(|(at, _), other| *at > index || proofs.awaits(&other.head));
        }
        self.drop_oldest();
    }

    /// Drops the oldest collections above the limit, but never that of the state that the log waits for.
    fn drop_oldest(&mut self) {
        while self.signature_shares.0.len() > MAX_COLLECTED_HEADS {
            let awaited = |gathered: &Certificate| self.proofs.awaits(&gathered.head);
            let oldest =
                self.signature_shares.0.iter().find(|(_, gathered)| !awaited(gathered)).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.signature_shares.0.remove(&oldest);
        }
    }

    fn send_certificate(&mut self, certificate: &Certificate) {
        let (me, voters) = (self.me, self.state.voters.clone());
        for voter in voters.acceptors().iter().filter(|voter| **voter != me) {
            self.send_at_once(*voter, Message::Certificate(certificate.clone()));
        }
        self.keep_certificate(certificate);
    }

    /// Handles a certificate from another node.
    pub(super) fn handle_certificate(&mut self, from: NodeId, certificate: &Certificate) {
        if !self.wants(&certificate.head) {
            self.confirm_configuration_certificate(from, certificate);
        } else if self.believes(certificate) {
            self.keep_certificate(certificate);
        }
    }

    /// Keeps at most as many certificates as entries. Certificates for later indices than the history count, too.
    pub(super) fn keep_certificate(&mut self, certificate: &Certificate) {
        self.certificates.insert(certificate.head.index, certificate.clone());
        while self.certificates.len() > self.options.kept {
            self.certificates.pop_first();
        }
        self.keep_proof(certificate);
    }
}
