//! Fetches missing history: from three voters, then from the leader, then from all voters and known members. In the
//! last case the node also accepts a whole state. The index does not advance meanwhile.

use std::time::Duration;

use holdoff_paxos::log::{self, EntryPayload};
use holdoff_paxos::{NodeId, Slot};
use holdoff_policy::{Failure, SoFar, as_micros_u64};

use super::{Ledger, Message};
use crate::certificate::{Certificate, Notary};
use crate::entry::{Hash, LogEntry, ReplicatedMachine, chain, link, written};

/// The number of voters in the first request.
const PEERS: usize = 3;

/// The attempt count that limits the wait of a node that only asks for news.
const ASKING: u32 = 2;

/// The maximum size of the entries in one message, in bytes. A single larger entry is sent alone.
const HISTORY_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Fetching {
    /// The number of requests without an answer.
    attempts: u32,
    /// The time of the next request.
    at_us: u64,
    /// Further nodes that may have missing history.
    pub(super) contacts: Vec<NodeId>,
}

impl Fetching {
    /// Resets the attempt count and the time of the next request.
    fn restart(&mut self) {
        (self.attempts, self.at_us) = (0, 0);
    }
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Requests missing history, in three cases: this node knows a certificate for a later index; it does not vote; or
    /// it knows no leader, because it may not know yet that it no longer votes.
    pub(super) fn fetch(&mut self) {
        let is_told = self.state.voters.contains(self.me) && self.log.leader().is_some();
        let misses = self.certified() > self.state.index || !is_told;
        if self.leader_state.is_some() || self.is_receiving() || !misses {
            self.fetching.restart();
            return;
        }
        if self.now_us < self.fetching.at_us {
            return;
        }
        let (peers, or_state) = self.fetch_targets();
        for peer in peers {
            self.counts.fetches += 1;
            self.send_at_once(peer, Message::Fetch { after: self.state.index, or_state });
        }
        self.fetching.attempts = self.fetching.attempts.saturating_add(1);
        self.fetching.at_us = self.now_us.saturating_add(self.wait_us());
    }

    /// Returns the nodes to ask, and whether a whole state is acceptable if no node has the entries.
    fn fetch_targets(&self) -> (Vec<NodeId>, bool) {
        let others = self.latest_voters().acceptors().iter().copied().filter(|voter| *voter != self.me);
        let mut others: Vec<_> = others.collect();
        match (self.fetching.attempts % 3, self.log.leader()) {
            (0, _) => {
                let first = self.roll as usize % others.len().max(1);
                others.rotate_left(first);
                others.truncate(PEERS);
                (others, false)
            }
            (1, Some(leader)) if leader != self.me => (vec![leader], false),
            (attempts, _) => {
                let contacts = self.fetching.contacts.iter().filter(|contact| **contact != self.me);
                others.extend(contacts);
                others.sort_unstable();
                others.dedup();
                (others, attempts == 2)
            }
        }
    }

    fn wait_us(&self) -> u64 {
        // A node that knows of no missing entry asks for news, and continues at the limited interval.
        let knows = self.certified() > self.state.index;
        let attempts = if knows { self.fetching.attempts } else { self.fetching.attempts.min(ASKING) };
        let so_far = SoFar::after(attempts);
        let decision = self.options.fetching.decide(&so_far, &Failure::transient(), self.roll);
        let after = decision.delay().unwrap_or(Duration::from_secs(1));
        as_micros_u64(after)
    }

    /// Answers a request for the history after an index: with entries, or with a whole state if the requester accepts
    /// one and the entries are no longer kept.
    pub(super) fn serve(&mut self, to: NodeId, after: Slot, or_state: bool) {
        self.counts.requests += 1;
        let first = after.next();
        if first > self.state.index {
            return;
        }
        if first >= self.first_kept() {
            self.serve_history(to, first);
        } else if or_state {
            self.serve_state(to, after);
        }
    }

    /// Sends the entries that fit into one message, and the hashes of the following entries up to a certificate.
    fn serve_history(&mut self, to: NodeId, first: Slot) {
        let near =
            Slot(first.0.saturating_add(self.options.batch as u64).saturating_sub(1)).min(self.state.index);
        let within = self.certificates.range(first..=near).next_back();
        let beyond = || self.certificates.range(first..=self.state.index).next();
        let Some((last, certificate)) = within.or_else(beyond) else { return };
        let skipped = usize::try_from(first.0 - self.first_kept().0).unwrap_or(usize::MAX);
        let count = usize::try_from(last.0 - first.0).unwrap_or(usize::MAX).saturating_add(1);
        let (mut entries, mut rest, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in self.history.iter().skip(skipped).take(count) {
            let Some((hash, size)) = written(entry) else { return };
            bytes += size;
            let has_room = bytes <= HISTORY_BYTES && entries.len() < self.options.batch;
            if entries.is_empty() || (has_room && rest.is_empty()) {
                entries.push(entry.clone());
            } else {
                rest.push(hash);
            }
        }
        let certificate = certificate.clone();
        self.counts.served += 1;
        self.send_at_once(to, Message::History { first, entries, rest, certificate });
    }

    /// Adopts history from another node. Tampered, stale or unconnected history changes nothing, and this node asks
    /// another node at once.
    pub(super) fn handle_history(
        &mut self,
        first: Slot,
        mut entries: Vec<LogEntry<M>>,
        rest: &[Hash],
        certificate: &Certificate,
    ) {
        if self.leader_state.is_some() || entries.len() > self.options.kept {
            return;
        }
        let next = self.state.index.next();
        let known = usize::try_from(next.0.saturating_sub(first.0)).unwrap_or(usize::MAX).min(entries.len());
        entries.drain(..known);
        if first > next || entries.is_empty() {
            return;
        }
        if !self.is_decided(&entries, rest, certificate) {
            self.reject_history();
            return;
        }
        self.counts.fetched += 1;
        self.fetching.restart();
        let is_more = entries.len() >= self.options.batch || !rest.is_empty();
        self.log(log::Input::Learn { first: next, entries });
        if is_more {
            self.fetch();
        }
        self.keep_certificate(certificate);
    }

    /// Counts rejected history, and allows the next request at once.
    pub(super) fn reject_history(&mut self) {
        self.counts.refused += 1;
        self.fetching.at_us = self.now_us;
    }

    /// Returns true if these entries continue the history of this node, and a majority has signed the hash that the
    /// entries and `rest` lead to.
    fn is_decided(&self, entries: &[LogEntry<M>], rest: &[Hash], certificate: &Certificate) -> bool {
        let (mut slot, mut hash) = (self.state.index, self.state.hash);
        let mut voters = &self.state.voters;
        for entry in entries {
            slot = slot.next();
            let Some(next) = link(hash, slot, entry) else { return false };
            hash = next;
            if let EntryPayload::Configuration(after) = &entry.payload {
                voters = after;
            }
        }
        for here in rest {
            slot = slot.next();
            hash = chain(hash, slot, *here);
        }
        let head = &certificate.head;
        let is_of_them = if rest.is_empty() {
            head.voters == *voters
        } else {
            certificate.continues(voters) || self.is_of_recovery(certificate)
        };
        (slot, hash) == (head.index, head.hash) && is_of_them && certificate.is_genuine(&self.notary)
    }
}
