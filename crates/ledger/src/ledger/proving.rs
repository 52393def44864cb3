//! Whole states that can be proven, in the place of entries.
//!
//! All take them at the same places, so that a majority signs the same ones; the log rests on one when it is signed and far
//! enough back. Whoever gets one must know whom to believe: for each change of the voters one certificate is kept, a
//! stone, by which one who knows earlier voters steps to the later ones.

use std::collections::BTreeMap;

use holdoff_paxos::log;
use holdoff_paxos::{Configuration, NodeId, Slot, Tally};

use super::{Ledger, Letter};
use crate::certificate::{Certificate, Head, Notary};
use crate::entry::Replicated;
use crate::state::{Checkpoint, State};

pub(super) struct Proofs<A> {
    /// By the first place that the voters decide.
    stones: BTreeMap<Slot, Certificate>,
    /// A state that the log will rest on.
    draft: Option<(Head, Checkpoint<A>)>,
    /// Which of the voters keep the stone of their own configuration, and which that is.
    keepers: (Slot, Tally),
}

impl<A> Proofs<A> {
    /// What another life has kept.
    pub(super) fn of(checkpoint: &Checkpoint<A>) -> Self {
        let stones = checkpoint.stones.iter().map(|stone| (stone.head.start, stone.clone())).collect();
        Self { stones, draft: None, keepers: (Slot(0), Tally::default()) }
    }

    /// Whether a state waits to be signed.
    pub(super) fn awaits(&self, head: &Head) -> bool {
        self.draft.as_ref().is_some_and(|(draft, state)| draft == head && state.proof.is_none())
    }

    pub(super) fn unsigned(&self) -> Option<&Head> {
        self.draft.as_ref().filter(|(_, state)| state.proof.is_none()).map(|(head, _)| head)
    }

    /// The latest voters that it has a stone of, by their first place.
    pub(super) fn latest(&self) -> Slot {
        self.stones.keys().next_back().copied().unwrap_or(Slot(1))
    }

    fn list(&self) -> Vec<Certificate> {
        self.stones.values().cloned().collect()
    }
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// At a place where all do so, takes the state for the log to rest on.
    pub(super) fn take_draft(&mut self) {
        if self.torn.is_some() || !self.state.index.0.is_multiple_of(self.every()) {
            return;
        }
        self.rest_on_draft();
        self.proofs.draft = Some((self.state.head(), self.state.checkpoint()));
        self.seal();
    }

    fn every(&self) -> u64 {
        (2 * self.options.kept as u64).max(1)
    }

    /// Rests on a state when it is signed, and so many entries are left for whoever is a little behind. Who does not vote
    /// hears of no signatures.
    pub(super) fn compact(&mut self) {
        let Some((head, state)) = &self.proofs.draft else { return };
        let is_back = self.state.index.0 >= head.index.0.saturating_add(self.options.kept as u64);
        let waits = state.proof.is_none() && self.state.voters.contains(self.me);
        if is_back && !waits {
            self.rest_on_draft();
        }
    }

    /// Rests on what is here, if a majority has signed that: somebody wants it now.
    pub(super) fn compact_now(&mut self) {
        let base = self.log.store().snapshot().last.slot;
        let Some(proof) = self.certificates.get(&self.state.index).filter(|_| self.state.index > base) else {
            return;
        };
        if proof.head == self.state.head() {
            let state = Checkpoint { proof: Some(proof.clone()), ..self.state.checkpoint() };
            self.proofs.draft = Some((self.state.head(), state));
            self.rest_on_draft();
        }
    }

    fn rest_on_draft(&mut self) {
        if let Some((Head { index: through, .. }, mut state)) = self.proofs.draft.take() {
            state.stones = self.proofs.list();
            self.log(log::Input::Compact { through, state });
        }
    }

    /// A majority has signed something, as was checked: it may be what shows a state, or who votes.
    pub(super) fn keep_proof(&mut self, certificate: &Certificate) {
        if let Some((_, state)) = self.proofs.draft.as_mut().filter(|(head, _)| *head == certificate.head) {
            state.proof.get_or_insert_with(|| certificate.clone());
        }
        let start = certificate.head.start;
        if start >= self.state.start && start > self.proofs.latest() {
            self.proofs.stones.insert(start, certificate.clone());
            self.store_stones();
            self.seal();
        }
    }

    /// Others rely on them, also in another life.
    fn store_stones(&mut self) {
        let base = self.log.store().snapshot();
        let stones = self.proofs.list();
        if base.state.stones != stones {
            let mut snapshot = base.clone();
            snapshot.state.stones = stones;
            self.log(log::Input::Rest(snapshot));
        }
    }

    /// The log rests on another state: with stones that may be news, or without some of those that are known.
    pub(super) fn take_stones(&mut self) {
        self.proofs.draft = None;
        for stone in &self.log.store().snapshot().state.stones {
            self.proofs.stones.entry(stone.head.start).or_insert_with(|| stone.clone());
        }
        self.store_stones();
    }

    /// Whether this is what it claims to be: signed by a majority of voters whom those that are known here lead to.
    pub(super) fn believes(&mut self, certificate: &Certificate) -> bool {
        let is_genuine = certificate.is_genuine(&self.notary);
        self.counts.forged_certificates += u64::from(!is_genuine);
        is_genuine && self.leads_to(certificate)
    }

    fn leads_to(&self, certificate: &Certificate) -> bool {
        let head = &certificate.head;
        if head.start <= self.state.start {
            // Who voted before is not known any more, but what they were asked to sign is.
            return self.proofs.awaits(head)
                || (head.start, &head.voters) == (self.state.start, &self.state.voters);
        }
        certificate.goes_on_from(self.voters_at(head.start))
    }

    /// The latest voters that are known, up to those who decide from this place on.
    fn voters_at(&self, start: Slot) -> &Configuration {
        let known = self.proofs.stones.range(..=start).next_back();
        let later = known.filter(|(known, _)| **known > self.state.start);
        later.map_or(&self.state.voters, |(_, stone)| &stone.head.voters)
    }

    /// The latest voters that are known.
    pub(super) fn latest_voters(&self) -> &Configuration {
        self.voters_at(Slot(u64::MAX))
    }

    /// Whether it keeps the stone of those who vote now; the first ones have none, for all begin with them.
    fn has_stone(&self) -> bool {
        self.state.start == Slot(1) || self.proofs.stones.contains_key(&self.state.start)
    }

    /// A voter says up to which voters it keeps stones: who misses one is sent it.
    pub(super) fn count_keeper(&mut self, node: NodeId, stone: Slot) {
        let (start, keepers) = &mut self.proofs.keepers;
        if *start != self.state.start {
            (*start, *keepers) = (self.state.start, Tally::default());
        }
        if stone >= *start {
            keepers.count(node, &self.state.voters);
        } else if let Some(stone) = self.proofs.stones.get(start).cloned().filter(|_| node != self.me) {
            self.send(node, Letter::Certified(stone));
        }
    }

    /// Whether a majority of those who vote keeps what shows others that they do: only then may others come.
    pub(super) fn is_known_of(&self) -> bool {
        let (start, keepers) = self.proofs.keepers;
        self.state.start == Slot(1) || (start == self.state.start && keepers.is_quorum(&self.state.voters))
    }

    /// A leader goes on asking until that is so.
    pub(super) fn spread_stone(&mut self) {
        if self.log.leads().is_none() || self.is_known_of() {
            return;
        }
        self.seal();
        let Some(stone) = self.proofs.stones.get(&self.state.start).cloned() else { return };
        for voter in self.proofs.keepers.1.missing(&self.state.voters.clone()) {
            if voter != self.me {
                self.send(voter, Letter::Certified(stone.clone()));
            }
        }
    }

    /// Answers the leader who asks whether its stone is kept.
    pub(super) fn confirm_stone(&mut self, from: NodeId, certificate: &Certificate) {
        if certificate.head.start == self.state.start && self.has_stone() && self.log.leader() == Some(from) {
            self.seal();
        }
    }

    /// Sends the state that the log rests on, if that is ahead of what somebody has, and can be proven.
    pub(super) fn serve_state(&mut self, to: NodeId, after: Slot) {
        let base = self.log.store().snapshot();
        if base.last.slot <= after || base.state.proof.is_none() {
            return;
        }
        let mut snapshot = base.clone();
        snapshot.state.stones = self.proofs.list();
        self.counts.states_served += 1;
        self.send(to, Letter::State(snapshot));
    }

    /// Somebody has sent a whole state. What is not proven, or not the state that is, is passed over.
    pub(super) fn admit_state(&mut self, snapshot: log::Snapshot<Checkpoint<M::Answer>>) {
        if self.tenure.is_some() || snapshot.last.slot <= self.state.index {
            return;
        }
        for stone in &snapshot.state.stones {
            let is_later = stone.head.start > self.state.start.max(self.proofs.latest());
            if is_later && self.believes(stone) {
                self.proofs.stones.insert(stone.head.start, stone.clone());
            }
        }
        let is_proven = match &snapshot.state.proof {
            Some(proof) => self.believes(proof) && Self::is_state_of(&snapshot, &proof.head),
            None => false,
        };
        if !is_proven {
            self.refuse();
            return;
        }
        self.counts.states += 1;
        self.log(log::Input::Rest(snapshot));
    }

    fn is_state_of(snapshot: &log::Snapshot<Checkpoint<M::Answer>>, head: &Head) -> bool {
        State::<M>::restore(snapshot).is_ok_and(|state| state.head() == *head)
    }
}
