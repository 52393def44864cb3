//! Signatures under what is decided: voters make them, whoever leads collects them.

use std::collections::BTreeMap;

use holdoff_paxos::log::Payload;
use holdoff_paxos::{NodeId, Slot};

use super::{Ledger, Letter};
use crate::certificate::{Certificate, Head, Notary, Seal};
use crate::entry::{Hash, Logged, Replicated};

/// So many places are collected for at a time: of what is older, there will be a newer one.
const PLACES: usize = 64;

/// One certificate is good for all before it, and signatures cost more than entries: so often is enough.
const OFTEN_US: u64 = 20_000;

/// What voters have signed, as far as no majority has.
#[derive(Default)]
pub(super) struct Seals(BTreeMap<(Slot, Hash), Certificate>);

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Signs how far the history is decided, unless that was done a moment ago: then the next tick does it.
    pub(super) fn seal_soon(&mut self) {
        // Who votes from here on is waited for.
        let is_value = |entry: &Logged<M>| matches!(entry.payload, Payload::Value(_));
        let may_wait = self.history.back().is_some_and(is_value);
        if !may_wait || self.sealed_us.is_none_or(|sealed_us| sealed_us + OFTEN_US <= self.now_us) {
            self.seal();
        }
    }

    /// Signs how far the history is decided, for whoever leads.
    pub(super) fn seal(&mut self) {
        if self.log.leader().is_some() {
            self.sealed_us = Some(self.now_us);
            self.sign(self.state.head());
        }
    }

    fn sign(&mut self, head: Head) {
        let Some(leader) = self.log.leader() else { return };
        if self.torn.is_some() || !head.voters.contains(self.me) {
            return;
        }
        let Some(digest) = head.digest() else { return };
        let signature = self.notary.sign(head.index, digest);
        let seal = Seal { head, signature, stone: self.proofs.latest() };
        if leader == self.me { self.collect(self.me, seal) } else { self.send(leader, Letter::Seal(seal)) }
    }

    /// Signs again what nobody has certified: somebody may not have heard.
    pub(super) fn seal_again(&mut self) {
        if self.certified() < self.state.index {
            self.seal();
        }
        if let Some(head) = self.proofs.unsigned().cloned() {
            self.sign(head);
        }
    }

    /// How far a majority has signed, as far as this node knows.
    pub fn certified(&self) -> Slot {
        self.certificates.keys().next_back().copied().unwrap_or_default()
    }

    /// Whether a certificate of this would be of use.
    fn wants(&self, head: &Head) -> bool {
        head.index > self.certified() || self.proofs.awaits(head) || head.start > self.proofs.latest()
    }

    pub(super) fn collect(&mut self, from: NodeId, seal: Seal) {
        let Seal { head, signature, stone } = seal;
        let is_mine = (head.start, &head.voters) == (self.state.start, &self.state.voters);
        if self.log.leads().is_none() || !is_mine || !head.voters.contains(from) {
            return;
        }
        self.count_keeper(from, stone);
        let index = head.index;
        if index > self.state.index || !self.wants(&head) {
            return;
        }
        let Some(digest) = head.digest() else { return };
        if from != self.me && !self.notary.is_signed(from, index, digest, &signature) {
            self.counts.forged_seals += 1;
            return;
        }
        let gathered = self.seals.0.entry((index, digest)).or_insert(Certificate { head, seals: Vec::new() });
        if gathered.seals.iter().all(|(voter, _)| *voter != from) {
            gathered.seals.push((from, signature));
        }
        if gathered.is_by_majority() {
            let certificate = gathered.clone();
            self.seals.0.remove(&(index, digest));
            self.publish(&certificate);
            let proofs = &self.proofs;
            self.seals.0.retain(|(place, _), other| *place > index || proofs.awaits(&other.head));
        }
        self.drop_oldest();
    }

    /// Only the state that the log waits to rest on is collected for however old it is.
    fn drop_oldest(&mut self) {
        while self.seals.0.len() > PLACES {
            let awaited = |gathered: &Certificate| self.proofs.awaits(&gathered.head);
            let oldest =
                self.seals.0.iter().find(|(_, gathered)| !awaited(gathered)).map(|(place, _)| *place);
            let Some(oldest) = oldest else { return };
            self.seals.0.remove(&oldest);
        }
    }

    fn publish(&mut self, certificate: &Certificate) {
        let (me, voters) = (self.me, self.state.voters.clone());
        for voter in voters.acceptors().iter().filter(|voter| **voter != me) {
            self.send(*voter, Letter::Certified(certificate.clone()));
        }
        self.keep_certificate(certificate);
    }

    /// A majority has signed something.
    pub(super) fn know(&mut self, from: NodeId, certificate: &Certificate) {
        if !self.wants(&certificate.head) {
            self.confirm_stone(from, certificate);
        } else if self.believes(certificate) {
            self.keep_certificate(certificate);
        }
    }

    /// As many as entries are kept: those that are ahead of the history count, too.
    pub(super) fn keep_certificate(&mut self, certificate: &Certificate) {
        self.certificates.insert(certificate.head.index, certificate.clone());
        while self.certificates.len() > self.options.kept {
            self.certificates.pop_first();
        }
        self.keep_proof(certificate);
    }
}
