//! Suspicion: the reasons to replace the leader, and the votes that follow.

use holdoff_net::PublicKey;

use super::{Held, Standing, Watch};
use crate::{Certificate, Claim, Signer, Verifier, Vote};

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Votes for the next epoch while there is a reason to, and withdraws the vote when there is none.
    pub(super) fn doubt(&mut self) {
        let me = self.pen.public();
        if !self.suspects() {
            self.suspecting_since_us = None;
            self.votes.remove(&me);
            return;
        }
        if self.suspecting_since_us.is_none() {
            self.suspecting_since_us = Some(self.now_us);
            self.counts.suspected += 1;
        }
        let wish = self.wish();
        let Some(next) = self.next().filter(|_| self.may_vote(wish)) else { return };
        if !self.votes.contains_key(&me) {
            self.votes.insert(me, Vote::sign(self.group, next, wish, &self.pen));
        }
        if !self.count() {
            self.say_votes();
        }
    }

    /// Begins the next epoch if the votes are a majority. Returns whether it did.
    pub(super) fn count(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        let Some(certificate) = Certificate::gather(next, &self.votes, self.electorate.majority()) else {
            return false;
        };
        // Each vote was verified when it arrived; this verifies the certificate as a whole.
        match certificate.prove(self.group, &self.electorate, &self.verifier) {
            Ok(proven) => {
                self.adopt(proven, None);
                true
            }
            Err(_) => false,
        }
    }

    /// Returns whether this node may vote. A voter must have listened first and must receive messages: a voter that
    /// receives none may itself be disconnected. The nominee votes first, because a certificate without its vote cannot
    /// name it; the other voters wait for its vote, for two rounds at most.
    pub(super) fn may_vote(&self, wish: Option<PublicKey>) -> bool {
        let me = self.pen.public();
        let since = |us: u64| self.now_us.saturating_sub(us);
        let hears = self.heard_us.is_some_and(|heard_us| since(heard_us) < self.times.suspicion_us);
        let waits = wish.is_some_and(|wish| wish != me && !self.votes.contains_key(&wish))
            && self.suspecting_since_us.is_none_or(|us| since(us) < self.times.round_us.saturating_mul(2));
        self.electorate.has(&me)
            && since(self.began_us) >= self.times.listening_us
            && (hears || self.electorate.is_single())
            && !waits
    }

    /// Returns whether another node should lead.
    pub(super) fn suspects(&self) -> bool {
        let Some(held) = &self.held else { return true };
        self.is_outdated(held) || held.leaving().is_some() || self.is_silent(held) || self.is_astray(held)
    }

    /// Returns whether the leader is suspected, or has not raised its heartbeat for two rounds.
    pub(super) fn doubts(&self) -> bool {
        let Some(held) = &self.held else { return true };
        self.now_us.saturating_sub(held.risen_us) >= self.times.round_us.saturating_mul(2) || self.suspects()
    }

    /// Returns whether the electorate has changed so that the certificate no longer proves the epoch to it.
    fn is_outdated(&self, held: &Held) -> bool {
        !held.proven.holds_for(&self.electorate)
    }

    /// Returns whether the heartbeat stands still and the log does not follow that leader either: a leader that the log
    /// follows is alive. A leader without a first heartbeat has its minimum tenure to get a quorum. After false alarms
    /// the suspicion time is longer, up to twice as long.
    fn is_silent(&self, held: &Held) -> bool {
        if self.is_confirmed(held.proven.claim()) {
            return false;
        }
        let still_us = self.now_us.saturating_sub(held.risen_us);
        if held.beat.is_none() {
            return still_us >= self.times.tenure_us;
        }
        let halves = 2 + u64::from(self.false_alarms.min(2));
        still_us >= self.times.suspicion_us.saturating_mul(halves) / 2
    }

    /// Returns whether the heartbeat rises although the log does not follow that leader: authority comes from the log.
    fn is_astray(&self, held: &Held) -> bool {
        held.beat.is_some() && self.now_us.saturating_sub(self.agreed_us) >= self.times.tenure_us
    }

    /// Notes the time if the log and the hint name the same leader. A node that does not vote always notes it.
    pub(super) fn compare(&mut self) {
        let Some(claim) = self.claim() else { return };
        if self.is_confirmed(claim) || !self.electorate.has(&self.pen.public()) {
            self.agreed_us = self.now_us;
        }
    }

    /// Returns whether the log names the leader of this claim.
    fn is_confirmed(&self, claim: Claim) -> bool {
        match self.standing {
            Standing::Leads => claim.leader == self.pen.public(),
            Standing::Follows(leader) => claim.leader == leader,
            Standing::Nobody => false,
        }
    }

    /// Returns the voter to nominate: the target of a leadership transfer, or else the current leader if the electorate
    /// has changed, or else this node if it leads the log, or else the leader that the log follows if it differs from
    /// the hint.
    pub(super) fn wish(&self) -> Option<PublicKey> {
        let held = self.held.as_ref();
        let leader = held.map(|held| held.proven.claim().leader);
        let renewed = held.filter(|held| self.is_outdated(held)).and(leader);
        let by_the_log = match self.standing {
            Standing::Leads => Some(self.pen.public()),
            Standing::Follows(followed) => Some(followed).filter(|_| leader != Some(followed)),
            Standing::Nobody => None,
        };
        let wish = held.and_then(Held::leaving).or(renewed).or(by_the_log);
        wish.filter(|wish| self.electorate.has(wish))
    }
}
