//! When another should lead, and what a voter does about it.

use holdoff_net::PublicKey;

use super::{Held, Standing, Watch};
use crate::{Certificate, Claim, Signer, Verifier, Vote};

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Votes for the next epoch while there is a reason to.
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

    /// Whether there are votes enough; then the next epoch begins.
    pub(super) fn count(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        let Some(certificate) = Certificate::gather(next, &self.votes, self.electorate.majority()) else {
            return false;
        };
        // Each vote was checked when it came.
        match certificate.prove(self.group, &self.electorate, &self.verifier) {
            Ok(proven) => {
                self.adopt(proven, None);
                true
            }
            Err(_) => false,
        }
    }

    /// A voter that has listened and hears somebody may; one that hears nobody may be what is broken. Who is wished for
    /// votes first, for without its vote it cannot be chosen; the others wait for that, but not for long.
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

    /// Whether another should lead.
    pub(super) fn suspects(&self) -> bool {
        let Some(held) = &self.held else { return true };
        self.is_outdated(held) || held.leaving().is_some() || self.is_silent(held) || self.is_astray(held)
    }

    /// Whether it may soon be suspected.
    pub(super) fn doubts(&self) -> bool {
        let Some(held) = &self.held else { return true };
        self.now_us.saturating_sub(held.risen_us) >= self.times.round_us.saturating_mul(2) || self.suspects()
    }

    /// Others vote now, and to them the epoch is not proven.
    fn is_outdated(&self, held: &Held) -> bool {
        !held.proven.holds_for(&self.electorate)
    }

    /// The heart stands still, and the log does not follow it either: whoever is heard there is not dead. One that has not
    /// begun to beat has its tenure to get a quorum; after false alarms there is more patience, up to twice as much.
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

    /// The heart beats, but the log does not follow: authority comes from there.
    fn is_astray(&self, held: &Held) -> bool {
        held.beat.is_some() && self.now_us.saturating_sub(self.agreed_us) >= self.times.tenure_us
    }

    /// Notes when the log and the hint name the same.
    pub(super) fn compare(&mut self) {
        let Some(claim) = self.claim() else { return };
        if self.is_confirmed(claim) || !self.electorate.has(&self.pen.public()) {
            self.agreed_us = self.now_us;
        }
    }

    /// Whether the log names the same.
    fn is_confirmed(&self, claim: Claim) -> bool {
        match self.standing {
            Standing::Leads => claim.leader == self.pen.public(),
            Standing::Follows(leader) => claim.leader == leader,
            Standing::Nobody => false,
        }
    }

    /// Whom the leader named, or who leads anyway.
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
