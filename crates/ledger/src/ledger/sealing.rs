//! Signatures under what is decided: voters make them, whoever leads collects them.

use std::collections::BTreeMap;

use holdoff_paxos::{NodeId, Slot};

use super::{Ledger, Letter};
use crate::certificate::{Certificate, Notary, Seal, Signature};
use crate::entry::{Hash, Replicated};

/// So many places are collected for at a time: of what is older, there will be a newer one.
const PLACES: usize = 64;

/// What voters have signed, as far as no majority has.
#[derive(Default)]
pub(super) struct Seals(BTreeMap<(Slot, Hash), Vec<(NodeId, Signature)>>);

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Signs how far the history is decided, for whoever leads.
    pub(super) fn seal(&mut self) {
        let Some(leader) = self.log.leader() else { return };
        if self.torn.is_some() || !self.state.voters.contains(self.me) {
            return;
        }
        let (index, hash) = (self.state.index, self.state.hash);
        let seal = Seal { index, hash, signature: self.notary.sign(index, hash) };
        if leader == self.me { self.collect(self.me, seal) } else { self.send(leader, Letter::Seal(seal)) }
    }

    /// Signs again what nobody has certified: somebody may not have heard.
    pub(super) fn seal_again(&mut self) {
        if self.certified() < self.state.index {
            self.seal();
        }
    }

    /// How far a majority has signed, as far as this node knows.
    pub fn certified(&self) -> Slot {
        self.certificates.keys().next_back().copied().unwrap_or_default()
    }

    pub(super) fn collect(&mut self, from: NodeId, seal: Seal) {
        let Seal { index, hash, signature } = seal;
        let is_new = index > self.certified() && index <= self.state.index;
        if self.log.leads().is_none() || !is_new || !self.state.voters.contains(from) {
            return;
        }
        if !self.notary.is_signed(from, index, hash, &signature) {
            return;
        }
        let seals = self.seals.0.entry((index, hash)).or_default();
        if seals.iter().all(|(voter, _)| *voter != from) {
            seals.push((from, signature));
        }
        let certificate = Certificate { index, hash, seals: seals.clone() };
        if certificate.is_of(&self.state.voters, &self.notary) {
            self.publish(&certificate);
        }
        while self.seals.0.len() > PLACES {
            self.seals.0.pop_first();
        }
    }

    fn publish(&mut self, certificate: &Certificate) {
        self.seals.0.retain(|(index, _), _| *index > certificate.index);
        self.keep_certificate(certificate.clone());
        let (me, voters) = (self.me, self.state.voters.clone());
        for voter in voters.acceptors().iter().filter(|voter| **voter != me) {
            self.send(*voter, Letter::Certified(certificate.clone()));
        }
    }

    /// A majority has signed something.
    pub(super) fn know(&mut self, certificate: Certificate) {
        let is_new = certificate.index > self.certified();
        if is_new && certificate.is_of(&self.state.voters, &self.notary) {
            self.keep_certificate(certificate);
        }
    }

    /// As many as entries are kept: those that are ahead of the history count, too.
    pub(super) fn keep_certificate(&mut self, certificate: Certificate) {
        self.certificates.insert(certificate.index, certificate);
        while self.certificates.len() > self.options.kept {
            self.certificates.pop_first();
        }
    }
}
