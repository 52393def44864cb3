//! The watch: it maintains the hint and the liveness of the leader, and produces the messages about both.

mod receiving;
mod suspicion;

use std::collections::BTreeMap;

use holdoff_net::PublicKey;

use crate::settings::Times;
use crate::{
    Electorate, EpochVote, GossipCounters, Group, Heartbeat, Hint, LeaderClaim, Message, NextEpoch,
    ProvenClaim, Settings, Signer, Verifier,
};

/// The maximum numbers of messages spread and of answers sent in a round; further messages are suppressed. Without
/// faults a node spreads one message a round.
const MOST_SPREAD: u32 = 8;
const MOST_ANSWERED: u32 = 16;

/// The log's view of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogRole {
    /// The node leads and holds a quorum.
    Leader,
    /// The node follows this leader.
    Follower(PublicKey),
    /// The node knows of no leader.
    Unknown,
}

/// A message and its kind of receivers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outgoing {
    /// Transmit to `fan_out` random peers.
    Spread(Message),
    /// Transmit to twice as many random peers: the message is rare, and nodes wait for it.
    Announce(Message),
    /// Transmit to a random peer.
    Single(Message),
    /// Transmit to the node that this message answers.
    Reply(Message),
}

/// The reason why a leader does not transfer leadership. The node's state has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// Another node should lead, or this node has no quorum.
    #[error("this node does not lead with a quorum, so it cannot transfer leadership")]
    NotLeading,
    /// The target is not another voter.
    #[error("the target is not another voter: name one")]
    NotAVoter,
    /// The leader's minimum tenure is not over.
    #[error("the minimum tenure of this leader is not over: try again in {} ms", .after_us.div_ceil(1000))]
    TooSoon {
        /// The remaining time.
        after_us: u64,
    },
}

/// Maintains the hint, and votes for a new epoch when another node should lead.
#[derive(Clone, Debug)]
pub struct Watch<S, V> {
    group: Group,
    signer: S,
    verifier: V,
    electorate: Electorate,
    times: Times,
    current: Option<CurrentClaim>,
    /// Votes for the epoch after the current claim's.
    votes: BTreeMap<PublicKey, EpochVote>,
    began_us: u64,
    /// When the node last received a message.
    heard_us: Option<u64>,
    log_role: LogRole,
    /// When the log and the hint last named the same leader.
    agreed_us: u64,
    suspecting_since_us: Option<u64>,
    false_alarms: u32,
    now_us: u64,
    spread: u32,
    answered: u32,
    outgoing: Vec<Outgoing>,
    pub(crate) counts: GossipCounters,
}

/// The highest proven claim, and the state of its leader.
#[derive(Clone, Debug)]
struct CurrentClaim {
    proven: ProvenClaim,
    beat: Option<Heartbeat>,
    learned_us: u64,
    risen_us: u64,
}

impl CurrentClaim {
    fn heartbeat(&self) -> u64 {
        self.beat.map_or(0, |beat| beat.hint.heartbeat)
    }

    fn leaving(&self) -> Option<PublicKey> {
        self.beat?.leaving
    }
}

impl<S: Signer, V: Verifier> Watch<S, V> {
    /// Creates a node without a claim. It listens first.
    pub fn new(
        group: Group,
        signer: S,
        verifier: V,
        electorate: Electorate,
        settings: &Settings,
        now_us: u64,
    ) -> Self {
        Self {
            group,
            signer,
            verifier,
            electorate,
            times: Times::from(settings),
            current: None,
            votes: BTreeMap::new(),
            began_us: now_us,
            heard_us: None,
            log_role: LogRole::Unknown,
            agreed_us: now_us,
            suspecting_since_us: None,
            false_alarms: 0,
            now_us,
            spread: 0,
            answered: 0,
            outgoing: Vec::new(),
            counts: GossipCounters::default(),
        }
    }

    /// Returns the highest hint known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        let current = self.current.as_ref()?;
        Some(Hint { claim: current.proven.claim(), heartbeat: current.heartbeat() })
    }

    /// Returns the node that should lead, once the claim is settled: its leader has sent a heartbeat, or no higher
    /// claim has arrived for the election time.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        let current = self.current.as_ref()?;
        let is_settled =
            current.beat.is_some() || now_us.saturating_sub(current.learned_us) >= self.times.election_us;
        is_settled.then_some(current.proven.claim().leader)
    }

    /// Returns the node's counters.
    pub fn counts(&self) -> &GossipCounters {
        &self.counts
    }

    /// Takes over the log's view of this node.
    pub fn set_log_role(&mut self, now_us: u64, log_role: LogRole) {
        self.at(now_us);
        self.log_role = log_role;
        self.compare();
    }

    /// Takes over the log's set of voters.
    pub fn set_electorate(&mut self, now_us: u64, electorate: Electorate) {
        self.at(now_us);
        self.votes.retain(|voter, _| electorate.has(voter));
        self.electorate = electorate;
    }

    /// Performs a round: raises the heartbeat as the leader, votes if there is a reason to, and asks for news.
    pub fn tick(&mut self, now_us: u64) -> Vec<Outgoing> {
        self.at(now_us);
        let was_quiet = self.spread == 0;
        (self.spread, self.answered) = (0, 0);
        self.compare();
        self.raise();
        self.update_vote();
        if self.current.is_none() && self.spread == 0 {
            self.spread_message(Message::Ask(None));
        } else if was_quiet && self.spread == 0 {
            // A node that has spread nothing for a round asks a peer, to learn of any claim that it missed.
            self.outgoing.push(Outgoing::Single(Message::Ask(self.claim())));
        }
        std::mem::take(&mut self.outgoing)
    }

    /// Begins a leadership transfer from this leader to another voter. Answers in the result go to that voter.
    pub fn transfer_leadership(
        &mut self,
        now_us: u64,
        to: PublicKey,
    ) -> Result<Vec<Outgoing>, TransferError> {
        self.at(now_us);
        let Some(current) = self.current.as_ref().filter(|current| self.leads(current)) else {
            return Err(TransferError::NotLeading);
        };
        if to == self.signer.public() || !self.electorate.has(&to) {
            return Err(TransferError::NotAVoter);
        }
        let stood_us = self.now_us.saturating_sub(current.learned_us);
        if stood_us < self.times.tenure_us {
            return Err(TransferError::TooSoon { after_us: self.times.tenure_us - stood_us });
        }
        self.beat(Some(to));
        if let Some(farewell) = self.farewell() {
            self.answer(Message::Heartbeat(farewell));
        }
        Ok(std::mem::take(&mut self.outgoing))
    }

    /// Raises the heartbeat. Only the leader does so, and only while it holds a quorum.
    fn raise(&mut self) {
        if self.current.as_ref().is_some_and(|current| self.leads(current)) {
            self.beat(None);
        } else if let Some(farewell) = self.farewell() {
            // The leader raises its heartbeat no more: repeat the last heartbeat for nodes that missed it.
            self.spread_message(Message::Heartbeat(farewell));
        }
    }

    /// Returns this node's last heartbeat, which names the target of the transfer, until another claim replaces its
    /// own.
    fn farewell(&self) -> Option<Heartbeat> {
        let beat = self.current.as_ref()?.beat?;
        (beat.hint.claim.leader == self.signer.public() && beat.leaving.is_some()).then_some(beat)
    }

    /// Returns whether this node should lead, leads with a quorum, and is not transferring leadership.
    fn leads(&self, current: &CurrentClaim) -> bool {
        current.proven.claim().leader == self.signer.public()
            && self.log_role == LogRole::Leader
            && current.leaving().is_none()
    }

    fn beat(&mut self, leaving: Option<PublicKey>) {
        let Some(Hint { claim, heartbeat }) = self.hint() else { return };
        let Some(heartbeat) = heartbeat.checked_add(1) else { return };
        let beat = Heartbeat::sign(self.group, Hint { claim, heartbeat }, leaving, &self.signer);
        self.counts.raised += 1;
        self.rise(beat);
    }

    fn claim(&self) -> Option<LeaderClaim> {
        Some(self.current.as_ref()?.proven.claim())
    }

    fn epoch(&self) -> u64 {
        self.claim().map_or(0, |claim| claim.epoch)
    }

    /// Returns the epoch that votes count for.
    fn next(&self) -> Option<NextEpoch> {
        let epoch = self.epoch().checked_add(1)?;
        Some(NextEpoch { epoch, previous_leader: self.claim().map(|claim| claim.leader) })
    }

    /// Advances the time. It never goes back.
    fn at(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    fn spread_message(&mut self, message: Message) {
        self.queue(Outgoing::Spread(message));
    }

    fn queue(&mut self, message: Outgoing) {
        if self.spread >= MOST_SPREAD {
            self.counts.suppressed += 1;
            return;
        }
        self.spread += 1;
        self.outgoing.push(message);
    }

    fn answer(&mut self, message: Message) {
        if self.answered >= MOST_ANSWERED {
            self.counts.suppressed += 1;
            return;
        }
        self.answered += 1;
        self.outgoing.push(Outgoing::Reply(message));
    }
}
