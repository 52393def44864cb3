//! The hint: who should lead, whether it lives, and what is said about that.

mod doubt;
mod hearing;

use std::collections::BTreeMap;

use holdoff_net::PublicKey;

use crate::settings::Times;
use crate::{
    Beat, Claim, Counts, Electorate, Group, Hint, Message, Next, Proven, Settings, Signer, Verifier, Vote,
};

/// So many messages are spread in one round, and so many answered; the rest is kept back. Without trouble it is one.
const MOST_SPREAD: u32 = 8;
const MOST_ANSWERED: u32 = 16;

/// What the log says of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It leads, and holds a quorum.
    Leads,
    /// It follows a leader.
    Follows(PublicKey),
    /// It knows of no leader.
    Nobody,
}

/// What is to be said, and to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Say {
    /// To some others, chosen at random.
    Spread(Message),
    /// To twice as many: it is rare, and waited for.
    Announce(Message),
    /// To one other, chosen at random.
    Whisper(Message),
    /// To whom it is an answer.
    Answer(Message),
}

/// Why a leader does not hand over. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotNow {
    /// Another should lead, or this node has no quorum.
    #[error("this node does not lead with a quorum, so it has nothing to hand over")]
    NotLeading,
    /// Not somebody that could lead.
    #[error("only another voter can take over: name one")]
    NotAVoter,
    /// It has hardly begun.
    #[error("this leader has only begun: ask again in {} ms", .after_us.div_ceil(1000))]
    TooSoon {
        /// When it may.
        after_us: u64,
    },
}

/// Knows who should lead, and finds out when somebody else should.
#[derive(Clone, Debug)]
pub struct Watch<S, V> {
    group: Group,
    pen: S,
    verifier: V,
    electorate: Electorate,
    times: Times,
    held: Option<Held>,
    /// For the epoch after the one that is held.
    votes: BTreeMap<PublicKey, Vote>,
    began_us: u64,
    /// When anybody was last heard.
    heard_us: Option<u64>,
    standing: Standing,
    /// When the log and the hint last named the same.
    agreed_us: u64,
    suspecting_since_us: Option<u64>,
    false_alarms: u32,
    now_us: u64,
    spread: u32,
    answered: u32,
    says: Vec<Say>,
    pub(crate) counts: Counts,
}

/// The claim that counts, and how its leader is.
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
    /// A node that knows nothing yet, and listens.
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

    /// The best that is known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        let held = self.held.as_ref()?;
        Some(Hint { claim: held.proven.claim(), heartbeat: held.heartbeat() })
    }

    /// Who should lead, once that is settled: its heart has begun to beat, or no better claim has come for a while.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        let held = self.held.as_ref()?;
        let is_settled =
            held.beat.is_some() || now_us.saturating_sub(held.learned_us) >= self.times.election_us;
        is_settled.then_some(held.proven.claim().leader)
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The log says where this node stands.
    pub fn stand(&mut self, now_us: u64, standing: Standing) {
        self.at(now_us);
        self.standing = standing;
        self.compare();
    }

    /// The log says who votes from now on.
    pub fn elect(&mut self, now_us: u64, electorate: Electorate) {
        self.at(now_us);
        self.votes.retain(|voter, _| electorate.has(voter));
        self.electorate = electorate;
    }

    /// A round has passed.
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
            // Who hears of nothing asks, so that whatever was missed is learned.
            self.says.push(Say::Whisper(Message::Ask(self.claim())));
        }
        std::mem::take(&mut self.says)
    }

    /// The leader would rather have another voter lead. What answers is for that one.
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

    /// Only who leads raises its heartbeat, and only while it holds a quorum.
    fn raise(&mut self) {
        let relays = planted!(RelaysRaise) && self.held.as_ref().is_some_and(|held| held.beat.is_some());
        if relays || self.held.as_ref().is_some_and(|held| self.leads(held)) {
            self.beat(None);
        } else if let Some(farewell) = self.farewell() {
            // It beats no more, so whoever missed this would wait for nothing.
            self.say_to_some(Message::Beat(farewell));
        }
    }

    /// This node's last beat, until another should lead.
    fn farewell(&self) -> Option<Beat> {
        let beat = self.held.as_ref()?.beat?;
        (beat.hint.claim.leader == self.pen.public() && beat.leaving.is_some()).then_some(beat)
    }

    /// Whether this node should lead, does so with a quorum, and means to go on.
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

    /// The epoch that votes count for.
    fn next(&self) -> Option<Next> {
        let epoch = self.epoch().checked_add(1)?;
        Some(Next { epoch, over: self.claim().map(|claim| claim.leader) })
    }

    /// Time does not go back.
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
