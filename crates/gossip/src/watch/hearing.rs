//! Received messages: the watch adopts only news that is proven and higher than its own.

use holdoff_net::PublicKey;

use super::{Held, Say, Watch};
use crate::{Beat, Certificate, Claim, Message, Next, Proven, Signer, Verifier, Vote};

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Handles a message from another node.
    pub fn hear(&mut self, now_us: u64, message: Message) -> Vec<Say> {
        self.at(now_us);
        if !message.is_within_limits() {
            self.counts.forged += 1;
            return Vec::new();
        }
        self.heard_us = Some(self.now_us);
        match message {
            Message::Beat(beat) => self.hear_beat(beat),
            Message::Ask(claim) => self.hear_claim(claim),
            Message::Proof { certificate, beat } => self.hear_proof(certificate, beat),
            Message::Votes { next, votes } => self.hear_votes(next, votes),
            Message::Join(_)
            | Message::Introduce(_)
            | Message::Exchange(_)
            | Message::Exchanged(_)
            | Message::Busy => {}
        }
        std::mem::take(&mut self.says)
    }

    /// Handles a claim without proof, which changes nothing. If the claim is higher than this node's, the node asks for
    /// the proof. If it is lower, the node sends its own proof.
    fn hear_claim(&mut self, theirs: Option<Claim>) {
        let mine = self.claim();
        if theirs > mine {
            self.answer(Message::Ask(mine));
        } else if theirs < mine {
            self.tell();
        }
    }

    fn hear_beat(&mut self, beat: Beat) {
        if Some(beat.hint.claim) == self.claim() {
            self.take_beat(beat);
        } else {
            self.hear_claim(Some(beat.hint.claim));
        }
    }

    fn take_beat(&mut self, beat: Beat) {
        let Some(held) = &self.held else { return };
        let (mine, theirs) = (held.heartbeat(), beat.hint.heartbeat);
        if theirs.saturating_add(2) <= mine {
            // A restarted leader has lost its heartbeat counter and would not be heard: send it the latest heartbeat.
            if let Some(latest) = held.beat {
                self.answer(Message::Beat(latest));
            }
        } else if theirs > mine {
            if !self.is_genuine(&beat) {
                self.counts.forged += 1;
                return;
            }
            self.counts.heard += 1;
            self.rise(beat);
        }
    }

    fn is_genuine(&self, beat: &Beat) -> bool {
        let by = |voter: &PublicKey| beat.is_signed_by(voter, self.group, &self.verifier);
        if planted!(RelaysRaise) {
            return self.electorate.voters().iter().any(by);
        }
        planted!(UncheckedBeats) || beat.is_genuine(self.group, &self.verifier)
    }

    /// Adopts a higher heartbeat: usually refutes the suspicion, drops the votes, and forwards the heartbeat.
    pub(super) fn rise(&mut self, beat: Beat) {
        let Some(held) = &mut self.held else { return };
        (held.beat, held.risen_us) = (Some(beat), self.now_us);
        if !self.suspects() {
            if self.suspecting_since_us.take().is_some() {
                self.false_alarms = self.false_alarms.saturating_add(1);
                self.counts.false_alarms += 1;
            }
            self.votes.clear();
        }
        self.say_to_some(Message::Beat(beat));
    }

    fn hear_proof(&mut self, certificate: Certificate, beat: Option<Beat>) {
        let (theirs, mine) = (certificate.claim(), self.claim());
        if theirs < mine {
            self.tell();
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
            self.take_beat(beat);
        }
    }

    /// Handles votes. Only votes for the next epoch count.
    fn hear_votes(&mut self, next: Next, votes: Vec<Vote>) {
        let mine = self.epoch();
        if next.epoch <= mine {
            self.tell();
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
        if self.suspects() && self.may_vote(self.wish()) {
            self.doubt();
        } else if self.doubts() {
            self.say_votes();
        }
    }

    pub(super) fn say_votes(&mut self) {
        let Some(next) = self.next() else { return };
        let votes = self.votes.values().copied().collect();
        self.say_to_some(Message::Votes { next, votes });
    }

    /// Adopts a higher claim that is proven, and announces its proof.
    pub(super) fn adopt(&mut self, proven: Proven, beat: Option<Beat>) {
        let claim = proven.claim();
        let genuine =
            beat.filter(|beat| beat.hint.claim == claim && beat.is_genuine(self.group, &self.verifier));
        let (learned_us, risen_us) = (self.now_us, self.now_us);
        self.held = Some(Held { proven, beat: genuine, learned_us, risen_us });
        self.votes.clear();
        (self.suspecting_since_us, self.false_alarms, self.agreed_us) = (None, 0, self.now_us);
        self.counts.claims += 1;
        if let Some(proof) = self.proof() {
            self.say(Say::Announce(proof));
        }
    }

    fn tell(&mut self) {
        if let Some(proof) = self.proof() {
            self.answer(proof);
        }
    }

    fn proof(&self) -> Option<Message> {
        let held = self.held.as_ref()?;
        Some(Message::Proof { certificate: held.proven.certificate().clone(), beat: held.beat })
    }
}
