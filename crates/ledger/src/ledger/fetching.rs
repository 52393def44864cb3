//! What is missing, from whoever has it: three peers, then the leader, then everybody. The index waits.

use std::time::Duration;

use holdoff_paxos::{NodeId, Slot, planted};
use holdoff_policy::{Failure, SoFar};

use super::{Ledger, Letter};
use crate::certificate::{Certificate, Notary};
use crate::entry::{Logged, Replicated, link};

/// So many are asked first.
const PEERS: usize = 3;

#[derive(Default)]
pub(super) struct Fetching {
    /// How often it was asked for in vain.
    tries: u32,
    /// When to ask again.
    at_us: u64,
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Asks for what is missing: what others have certified, or, for one who does not vote, whatever there is.
    pub(super) fn fetch(&mut self) {
        let misses = self.certified() > self.state.index || !self.state.voters.contains(self.me);
        if self.tenure.is_some() || !misses {
            self.fetching = Fetching::default();
            return;
        }
        if self.now_us < self.fetching.at_us {
            return;
        }
        for peer in self.whom_to_ask() {
            self.send(peer, Letter::Fetch(self.state.index));
        }
        self.fetching.tries = self.fetching.tries.saturating_add(1);
        self.fetching.at_us = self.now_us.saturating_add(self.wait_us());
    }

    fn whom_to_ask(&self) -> Vec<NodeId> {
        let others = self.state.voters.acceptors().iter().copied().filter(|voter| *voter != self.me);
        let mut others: Vec<_> = others.collect();
        match (self.fetching.tries % 3, self.log.leader()) {
            (0, _) => {
                let first = self.roll as usize % others.len().max(1);
                others.rotate_left(first);
                others.truncate(PEERS);
                others
            }
            (1, Some(leader)) if leader != self.me => vec![leader],
            _ => others,
        }
    }

    fn wait_us(&self) -> u64 {
        let so_far = SoFar::after(self.fetching.tries);
        let decision = self.options.fetching.decide(&so_far, &Failure::transient(), self.roll);
        let after = decision.delay().unwrap_or(Duration::from_secs(1));
        u64::try_from(after.as_micros()).unwrap_or(u64::MAX)
    }

    /// Somebody misses what comes after a place: it gets entries up to the best certificate there is for them.
    pub(super) fn serve(&mut self, to: NodeId, after: Slot) {
        let first = after.next();
        if first < self.first_kept() || first > self.state.index {
            return;
        }
        let near = Slot(after.0.saturating_add(self.options.batch as u64)).min(self.state.index);
        let within = self.certificates.range(first..=near).next_back();
        let beyond = || self.certificates.range(first..=self.state.index).next();
        let Some((_, certificate)) = within.or_else(beyond) else { return };
        let skipped = usize::try_from(first.0 - self.first_kept().0).unwrap_or(usize::MAX);
        let count = usize::try_from(certificate.index.0 - after.0).unwrap_or(usize::MAX);
        let entries = self.history.iter().skip(skipped).take(count).cloned().collect();
        let certificate = certificate.clone();
        self.send(to, Letter::History { first, entries, certificate });
    }

    /// Somebody has sent what was missing. What was tampered with, is stale or fits nowhere is passed over, and
    /// somebody else asked at once.
    pub(super) fn admit(&mut self, first: Slot, mut entries: Vec<Logged<M>>, certificate: Certificate) {
        if self.tenure.is_some() || entries.len() > self.options.kept {
            return;
        }
        if planted!(LocalNumbers) {
            for entry in entries {
                self.apply_by_own_count(entry);
            }
            return;
        }
        let next = self.state.index.next();
        let known = usize::try_from(next.0.saturating_sub(first.0)).unwrap_or(usize::MAX).min(entries.len());
        entries.drain(..known);
        if first > next || entries.is_empty() {
            return;
        }
        if !self.is_decided(&entries, &certificate) {
            self.fetching.at_us = self.now_us;
            return;
        }
        for entry in entries {
            if self.torn.is_none() {
                self.apply(self.state.index.next(), entry);
            }
        }
        self.fetching = Fetching::default();
        self.keep_certificate(certificate);
        self.seal();
    }

    /// Whether these entries go on from what is here, and a majority has signed where they lead.
    fn is_decided(&self, entries: &[Logged<M>], certificate: &Certificate) -> bool {
        let (mut slot, mut hash) = (self.state.index, self.state.hash);
        let mut voters = &self.state.voters;
        let mut deciding = voters;
        for entry in entries {
            slot = slot.next();
            let Some(next) = link(hash, slot, entry) else { return false };
            (hash, deciding) = (next, voters);
            if let holdoff_paxos::log::Payload::Configuration(after) = &entry.payload {
                voters = after;
            }
        }
        let is_there = (slot, hash) == (certificate.index, certificate.hash);
        let is_of = |voters| certificate.is_of(voters, &self.notary);
        is_there && (is_of(deciding) || is_of(voters))
    }

    /// The first system's way: what arrives is what comes next.
    fn apply_by_own_count(&mut self, mut entry: Logged<M>) {
        let index = self.state.index.next();
        if let holdoff_paxos::log::Payload::Value(value) = &mut entry.payload {
            (value.index, value.prev_hash) = (index, self.state.hash);
        }
        if self.torn.is_none() {
            self.apply(index, entry);
        }
    }
}
