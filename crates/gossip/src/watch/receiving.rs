//! Received messages: the watch adopts only news that is proven and higher than its own.

use super::{CurrentClaim, Outgoing, Watch};
use crate::{
    EpochCertificate, EpochVote, Heartbeat, LeaderClaim, Message, NextEpoch, ProvenClaim, Signer, Verifier,
};

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Handles a message from another node.
    pub fn receive(&mut self, now_us: u64, message: Message) -> Vec<Outgoing> {
        self.at(now_us);
        if !message.is_within_limits() {
            self.counts.forged += 1;
            return Vec::new();
        }
        self.heard_us = Some(self.now_us);
        match message {
            Message::Heartbeat(beat) => self.receive_heartbeat(beat),
            Message::Ask(claim) => self.receive_claim(claim),
            Message::Proof { certificate, beat } => self.receive_proof(certificate, beat),
            Message::Votes { next, votes } => self.receive_votes(next, votes),
        }
        std::mem::take(&mut self.outgoing)
    }

    /// Handles a claim without proof, which changes nothing. If the claim is higher than this node's, the node asks for
    /// the proof. If it is lower, the node sends its own proof.
    fn receive_claim(&mut self, theirs: Option<LeaderClaim>) {
        let mine = self.claim();
        if theirs > mine {
            self.answer(Message::Ask(mine));
        } else if theirs < mine {
            self.send_proof();
        }
    }

    fn receive_heartbeat(&mut self, beat: Heartbeat) {
        if Some(beat.hint.claim) == self.claim() {
            self.accept_heartbeat(beat);
        } else {
            self.receive_claim(Some(beat.hint.claim));
        }
    }

    fn accept_heartbeat(&mut self, beat: Heartbeat) {
        let Some(current) = &self.current else { return };
        let (mine, theirs) = (current.heartbeat(), beat.hint.heartbeat);
        if theirs.saturating_add(2) <= mine {
            // A restarted leader has lost its heartbeat counter and would not be heard: send it the latest heartbeat.
            if let Some(latest) = current.beat {
                self.answer(Message::Heartbeat(latest));
            }
        } else if theirs > mine {
            if !beat.is_genuine(self.group, &self.verifier) {
                self.counts.forged += 1;
                return;
            }
            self.counts.heard += 1;
            self.rise(beat);
        }
    }

    /// Adopts a higher heartbeat: usually refutes the suspicion, drops the votes, and forwards the heartbeat.
    pub(super) fn rise(&mut self, beat: Heartbeat) {
        let Some(current) = &mut self.current else { return };
        (current.beat, current.risen_us) = (Some(beat), self.now_us);
        if !self.suspects() {
            if self.suspecting_since_us.take().is_some() {
                self.false_alarms = self.false_alarms.saturating_add(1);
                self.counts.false_alarms += 1;
            }
            self.votes.clear();
        }
        self.spread_message(Message::Heartbeat(beat));
    }

    fn receive_proof(&mut self, certificate: EpochCertificate, beat: Option<Heartbeat>) {
        let (theirs, mine) = (certificate.claim(), self.claim());
        if theirs < mine {
            self.send_proof();
            return;
        }
        if theirs > mine {
            match certificate.prove(self.group, &self.electorate, &self.verifier) {
                Ok(proven) => self.adopt(proven, beat),
                Err(_) => self.counts.forged += 1,
            }
            return;
        }
        if let Some(beat) = beat.filter(|beat| Some(beat.hint.claim) == theirs) {
            self.accept_heartbeat(beat);
        }
    }

    /// Handles votes. Only votes for the next epoch count.
    fn receive_votes(&mut self, next: NextEpoch, votes: Vec<EpochVote>) {
        let mine = self.epoch();
        if next.epoch <= mine {
            self.send_proof();
            return;
        }
        if self.next() != Some(next) {
            // The sender knows later epochs, or another claim in this epoch. Asking resolves both cases.
            let mine = self.claim();
            self.answer(Message::Ask(mine));
            return;
        }
        let mut is_new = false;
        for vote in votes {
            if self.votes.contains_key(&vote.by) {
                continue;
            }
            if !self.electorate.has(&vote.by) || !vote.is_genuine(self.group, next, &self.verifier) {
                self.counts.forged += 1;
                continue;
            }
            is_new |= self.votes.insert(vote.by, vote).is_none();
        }
        if !is_new || self.count() {
            return;
        }
        // A node that has recently received a heartbeat does not forward votes.
        if self.suspects() && self.may_vote(self.nominee()) {
            self.update_vote();
        } else if self.is_overdue() {
            self.send_votes();
        }
    }

    pub(super) fn send_votes(&mut self) {
        let Some(next) = self.next() else { return };
        let votes = self.votes.values().copied().collect();
        self.spread_message(Message::Votes { next, votes });
    }

    /// Adopts a higher claim that is proven, and announces its proof.
    pub(super) fn adopt(&mut self, proven: ProvenClaim, beat: Option<Heartbeat>) {
        let claim = proven.claim();
        let genuine =
            beat.filter(|beat| beat.hint.claim == claim && beat.is_genuine(self.group, &self.verifier));
        let (learned_us, risen_us) = (self.now_us, self.now_us);
        self.current = Some(CurrentClaim { proven, beat: genuine, learned_us, risen_us });
        self.votes.clear();
        (self.suspecting_since_us, self.false_alarms, self.agreed_us) = (None, 0, self.now_us);
        self.counts.claims += 1;
        if let Some(proof) = self.proof() {
            self.queue(Outgoing::Announce(proof));
        }
    }

    fn send_proof(&mut self) {
        if let Some(proof) = self.proof() {
            self.answer(proof);
        }
    }

    fn proof(&self) -> Option<Message> {
        let current = self.current.as_ref()?;
        Some(Message::Proof { certificate: current.proven.certificate().clone(), beat: current.beat })
    }
}
