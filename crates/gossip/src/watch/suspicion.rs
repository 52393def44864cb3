//! Suspicion: the reasons to replace the leader, and the votes that follow.

use holdoff_net::PublicKey;

use super::{CurrentClaim, LogRole, Watch};
use crate::{EpochCertificate, EpochVote, LeaderClaim, Signer, Verifier};

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Votes for the next epoch while there is a reason to, and withdraws the vote when there is none.
    pub(super) fn update_vote(&mut self) {
        let me = self.signer.public();
        if !self.suspects() {
            self.suspecting_since_us = None;
            self.votes.remove(&me);
            return;
        }
        if self.suspecting_since_us.is_none() {
            self.suspecting_since_us = Some(self.now_us);
            self.counts.suspected += 1;
        }
        let nominee = self.nominee();
        let Some(next) = self.next().filter(|_| self.may_vote(nominee)) else { return };
        if !self.votes.contains_key(&me) {
            self.votes.insert(me, EpochVote::sign(self.group, next, nominee, &self.signer));
        }
        if !self.count() {
            self.send_votes();
        }
    }

    /// Begins the next epoch if the votes are a majority. Returns whether it did.
    pub(super) fn count(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        let Some(certificate) = EpochCertificate::gather(next, &self.votes, self.electorate.majority())
        else {
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
    pub(super) fn may_vote(&self, nominee: Option<PublicKey>) -> bool {
        let me = self.signer.public();
        let since = |us: u64| self.now_us.saturating_sub(us);
        let hears = self.heard_us.is_some_and(|heard_us| since(heard_us) < self.times.suspicion_us);
        let waits = nominee.is_some_and(|nominee| nominee != me && !self.votes.contains_key(&nominee))
            && self.suspecting_since_us.is_none_or(|us| since(us) < self.times.round_us.saturating_mul(2));
        self.electorate.has(&me)
            && since(self.began_us) >= self.times.listening_us
            && (hears || self.electorate.is_single())
            && !waits
    }

    /// Returns whether another node should lead.
    pub(super) fn suspects(&self) -> bool {
        let Some(current) = &self.current else { return true };
        self.is_outdated(current)
            || current.leaving().is_some()
            || self.is_silent(current)
            || self.is_not_followed(current)
    }

    /// Returns whether the leader is suspected, or has not raised its heartbeat for two rounds.
    pub(super) fn is_overdue(&self) -> bool {
        let Some(current) = &self.current else { return true };
        self.now_us.saturating_sub(current.risen_us) >= self.times.round_us.saturating_mul(2)
            || self.suspects()
    }

    /// Returns whether the electorate has changed so that the certificate no longer proves the epoch to it.
    fn is_outdated(&self, current: &CurrentClaim) -> bool {
        !current.proven.holds_for(&self.electorate)
    }

    /// Returns whether the heartbeat stands still and the log does not follow that leader either: a leader that the log
    /// follows is alive. A leader without a first heartbeat has its minimum tenure to get a quorum. After false alarms
    /// the suspicion time is longer, up to twice as long.
    fn is_silent(&self, current: &CurrentClaim) -> bool {
        if self.is_confirmed(current.proven.claim()) {
            return false;
        }
        let still_us = self.now_us.saturating_sub(current.risen_us);
        if current.beat.is_none() {
            return still_us >= self.times.tenure_us;
        }
        let halves = 2 + u64::from(self.false_alarms.min(2));
        still_us >= self.times.suspicion_us.saturating_mul(halves) / 2
    }

    /// Returns whether the heartbeat rises although the log does not follow that leader: authority comes from the log.
    fn is_not_followed(&self, current: &CurrentClaim) -> bool {
        current.beat.is_some() && self.now_us.saturating_sub(self.agreed_us) >= self.times.tenure_us
    }

    /// Notes the time if the log and the hint name the same leader. A node that does not vote always notes it.
    pub(super) fn compare(&mut self) {
        let Some(claim) = self.claim() else { return };
        if self.is_confirmed(claim) || !self.electorate.has(&self.signer.public()) {
            self.agreed_us = self.now_us;
        }
    }

    /// Returns whether the log names the leader of this claim.
    fn is_confirmed(&self, claim: LeaderClaim) -> bool {
        match self.log_role {
            LogRole::Leader => claim.leader == self.signer.public(),
            LogRole::Follower(leader) => claim.leader == leader,
            LogRole::Unknown => false,
        }
    }

    /// Returns the voter to nominate: the target of a leadership transfer, or else the current leader if the electorate
    /// has changed, or else this node if it leads the log, or else the leader that the log follows if it differs from
    /// the hint.
    pub(super) fn nominee(&self) -> Option<PublicKey> {
        let current = self.current.as_ref();
        let leader = current.map(|current| current.proven.claim().leader);
        let renewed = current.filter(|current| self.is_outdated(current)).and(leader);
        let by_the_log = match self.log_role {
            LogRole::Leader => Some(self.signer.public()),
            LogRole::Follower(followed) => Some(followed).filter(|_| leader != Some(followed)),
            LogRole::Unknown => None,
        };
        let nominee = current.and_then(CurrentClaim::leaving).or(renewed).or(by_the_log);
        nominee.filter(|nominee| self.electorate.has(nominee))
    }
}
