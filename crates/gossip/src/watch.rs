//! The watch: it maintains the hint and the liveness of the leader, and produces the messages about both.

mod doubt;
mod hearing;

use std::collections::BTreeMap;

use holdoff_net::PublicKey;

use crate::settings::Times;
use crate::{
    Beat, Claim, Counts, Electorate, Group, Hint, Message, Next, Proven, Settings, Signer, Verifier, Vote,
};

/// The maximum numbers of messages spread and of answers sent in a round; further messages are suppressed. Without
/// faults a node spreads one message a round.
const MOST_SPREAD: u32 = 8;
const MOST_ANSWERED: u32 = 16;

/// The log's view of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The node leads and holds a quorum.
    Leads,
    /// The node follows this leader.
    Follows(PublicKey),
    /// The node knows of no leader.
    Nobody,
}

/// A message and its kind of receivers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Say {
    /// Send to `fan_out` random peers.
    Spread(Message),
    /// Send to twice as many random peers: the message is rare, and nodes wait for it.
    Announce(Message),
    /// Send to a random peer.
    Whisper(Message),
    /// Send to the node that this message answers.
    Answer(Message),
}

/// The reason why a leader does not transfer leadership. The node's state has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotNow {
    /// Another node should lead, or this node has no quorum.
    #[error("this node does not lead with a quorum, so it has nothing to hand over")]
    NotLeading,
    /// The target is not another voter.
    #[error("only another voter can take over: name one")]
    NotAVoter,
    /// The leader's minimum tenure is not over.
    #[error("this leader has only begun: ask again in {} ms", .after_us.div_ceil(1000))]
    TooSoon {
        /// The remaining time.
        after_us: u64,
    },
}

/// Maintains the hint, and votes for a new epoch when another node should lead.
#[derive(Clone, Debug)]
pub struct Watch<S, V> {
    group: Group,
    pen: S,
    verifier: V,
    electorate: Electorate,
    times: Times,
    held: Option<Held>,
    /// Votes for the epoch after the held claim's.
    votes: BTreeMap<PublicKey, Vote>,
    began_us: u64,
    /// When the node last received a message.
    heard_us: Option<u64>,
    standing: Standing,
    /// When the log and the hint last named the same leader.
    agreed_us: u64,
    suspecting_since_us: Option<u64>,
    false_alarms: u32,
    now_us: u64,
    spread: u32,
    answered: u32,
    says: Vec<Say>,
    pub(crate) counts: Counts,
}

/// The highest proven claim, and the state of its leader.
#[derive(Clone, Debug)]
struct Held {
    proven: Proven,
    beat: Option<Beat>,
    learned_us: u64,
    risen_us: u64,
}

impl Held {
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
        pen: S,
        verifier: V,
        electorate: Electorate,
        settings: &Settings,
        now_us: u64,
    ) -> Self {
        Self {
            group,
            pen,
            verifier,
            electorate,
            times: Times::from(settings),
            held: None,
            votes: BTreeMap::new(),
            began_us: now_us,
            heard_us: None,
            standing: Standing::Nobody,
            agreed_us: now_us,
            suspecting_since_us: None,
            false_alarms: 0,
            now_us,
            spread: 0,
            answered: 0,
            says: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the highest hint known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        let held = self.held.as_ref()?;
        Some(Hint { claim: held.proven.claim(), heartbeat: held.heartbeat() })
    }

    /// Returns the node that should lead, once the claim is settled: its leader has sent a heartbeat, or no higher
    /// claim has arrived for the election time.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        let held = self.held.as_ref()?;
        let is_settled =
            held.beat.is_some() || now_us.saturating_sub(held.learned_us) >= self.times.election_us;
        is_settled.then_some(held.proven.claim().leader)
    }

    /// Returns the node's counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes over the log's view of this node.
    pub fn stand(&mut self, now_us: u64, standing: Standing) {
        self.at(now_us);
        self.standing = standing;
        self.compare();
    }

    /// Takes over the log's set of voters.
    pub fn elect(&mut self, now_us: u64, electorate: Electorate) {
        self.at(now_us);
        self.votes.retain(|voter, _| electorate.has(voter));
        self.electorate = electorate;
    }

    /// Performs a round: raises the heartbeat as the leader, votes if there is a reason to, and asks for news.
    pub fn tick(&mut self, now_us: u64) -> Vec<Say> {
        self.at(now_us);
        let was_quiet = self.spread == 0;
        (self.spread, self.answered) = (0, 0);
        self.compare();
        self.raise();
        self.doubt();
        if self.held.is_none() && self.spread == 0 {
            self.say_to_some(Message::Ask(None));
        } else if was_quiet && self.spread == 0 {
            // A node that has spread nothing for a round asks a peer, to learn of any claim that it missed.
            self.says.push(Say::Whisper(Message::Ask(self.claim())));
        }
        std::mem::take(&mut self.says)
    }

    /// Begins a leadership transfer from this leader to another voter. Answers in the result go to that voter.
    pub fn hand_over(&mut self, now_us: u64, to: PublicKey) -> Result<Vec<Say>, NotNow> {
        self.at(now_us);
        let Some(held) = self.held.as_ref().filter(|held| self.leads(held)) else {
            return Err(NotNow::NotLeading);
        };
        if to == self.pen.public() || !self.electorate.has(&to) {
            return Err(NotNow::NotAVoter);
        }
        let stood_us = self.now_us.saturating_sub(held.learned_us);
        if stood_us < self.times.tenure_us {
            return Err(NotNow::TooSoon { after_us: self.times.tenure_us - stood_us });
        }
        self.beat(Some(to));
        if let Some(farewell) = self.farewell() {
            self.answer(Message::Beat(farewell));
        }
        Ok(std::mem::take(&mut self.says))
    }

    /// Raises the heartbeat. Only the leader does so, and only while it holds a quorum.
    fn raise(&mut self) {
        let relays = planted!(RelaysRaise) && self.held.as_ref().is_some_and(|held| held.beat.is_some());
        if relays || self.held.as_ref().is_some_and(|held| self.leads(held)) {
            self.beat(None);
        } else if let Some(farewell) = self.farewell() {
            // The leader raises its heartbeat no more: repeat the last heartbeat for nodes that missed it.
            self.say_to_some(Message::Beat(farewell));
        }
    }

    /// Returns this node's last heartbeat, which names the target of the transfer, until another claim replaces its
    /// own.
    fn farewell(&self) -> Option<Beat> {
        let beat = self.held.as_ref()?.beat?;
        (beat.hint.claim.leader == self.pen.public() && beat.leaving.is_some()).then_some(beat)
    }

    /// Returns whether this node should lead, leads with a quorum, and is not transferring leadership.
    fn leads(&self, held: &Held) -> bool {
        held.proven.claim().leader == self.pen.public()
            && self.standing == Standing::Leads
            && held.leaving().is_none()
    }

    fn beat(&mut self, leaving: Option<PublicKey>) {
        let Some(Hint { claim, heartbeat }) = self.hint() else { return };
        let Some(heartbeat) = heartbeat.checked_add(1) else { return };
        let beat = Beat::sign(self.group, Hint { claim, heartbeat }, leaving, &self.pen);
        self.counts.raised += 1;
        self.rise(beat);
    }

    fn claim(&self) -> Option<Claim> {
        Some(self.held.as_ref()?.proven.claim())
    }

    fn epoch(&self) -> u64 {
        self.claim().map_or(0, |claim| claim.epoch)
    }

    /// Returns the epoch that votes count for.
    fn next(&self) -> Option<Next> {
        let epoch = self.epoch().checked_add(1)?;
        Some(Next { epoch, over: self.claim().map(|claim| claim.leader) })
    }

    /// Advances the time. It never goes back.
    fn at(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    fn say_to_some(&mut self, message: Message) {
        self.say(Say::Spread(message));
    }

    fn say(&mut self, say: Say) {
        if self.spread >= MOST_SPREAD {
            self.counts.kept_back += 1;
            return;
        }
        self.spread += 1;
        self.says.push(say);
    }

    fn answer(&mut self, message: Message) {
        if self.answered >= MOST_ANSWERED {
            self.counts.kept_back += 1;
            return;
        }
        self.answered += 1;
        self.says.push(Say::Answer(message));
    }
}
