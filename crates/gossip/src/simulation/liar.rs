//! A lying voter. It claims to lead, invents epochs, replays old messages, and forges the votes of others.

use std::collections::BTreeMap;

use holdoff_sim::kernel::{NodeContext, NodeId};

use super::node::SimulatedNode;
use super::node::{GROUP, TestSigner, key};
use crate::{EpochCertificate, EpochVote, Heartbeat, Hint, LeaderClaim, Message, NextEpoch, Node, Signature};

pub(super) struct Liar {
    signer: TestSigner,
    majority: usize,
    overheard: Vec<Vec<u8>>,
    votes: Vec<(NextEpoch, EpochVote)>,
    rounds: u64,
}

const MOST: usize = 500;

impl Liar {
    pub(super) fn new(me: NodeId, majority: usize) -> Self {
        Self { signer: TestSigner(key(me)), majority, overheard: Vec::new(), votes: Vec::new(), rounds: 0 }
    }

    /// Records every message, to replay it later.
    pub(super) fn overhear(&mut self, message: &Message, bytes: &[u8]) {
        if self.overheard.len() < MOST {
            self.overheard.push(bytes.to_vec());
        }
        if let Message::Votes { next, votes } = message {
            let room = MOST.saturating_sub(self.votes.len());
            self.votes.extend(votes.iter().take(room).map(|vote| (*next, *vote)));
        }
    }

    /// Returns whether the liar still waits. It begins after the others have voted without it.
    pub(super) fn is_waiting(&self) -> bool {
        self.rounds < 20
    }

    pub(super) fn lie(
        &mut self,
        node: &Node<TestSigner, TestSigner>,
        context: &mut NodeContext<'_, SimulatedNode>,
    ) {
        self.rounds += 1;
        if self.is_waiting() {
            return;
        }
        let me = self.signer.0;
        let epoch = node.hint().map_or(0, |hint| hint.claim.epoch);
        let mut lies = Vec::new();
        for epoch in [epoch, epoch + 1, u64::MAX] {
            let claim = LeaderClaim { epoch, rank: u32::MAX, leader: me };
            for heartbeat in [self.rounds, u64::MAX] {
                lies.push(Message::Heartbeat(Heartbeat::sign(
                    GROUP,
                    Hint { claim, heartbeat },
                    Some(me),
                    &self.signer,
                )));
            }
            lies.push(Message::Ask(Some(claim)));
            let previous_leader = node.hint().map(|hint| hint.claim.leader);
            let next = NextEpoch { epoch, previous_leader };
            let mine = EpochVote::sign(GROUP, next, Some(me), &self.signer);
            lies.push(Message::Votes { next, votes: vec![mine] });
            lies.push(Message::Proof {
                certificate: EpochCertificate { next, votes: vec![mine; 2] },
                beat: None,
            });
            // Forged votes in the names of other voters, and votes that they have signed for other epochs.
            let forge = |by| EpochVote { by, nominee: Some(me), signature: Signature::from_bytes([1; 64]) };
            let forged: Vec<_> = (0..context.nodes().min(6)).map(|node| forge(key(node))).collect();
            lies.push(Message::Votes { next, votes: forged.clone() });
            lies.push(Message::Proof { certificate: EpochCertificate { next, votes: forged }, beat: None });
            let old = self.votes.iter().filter(|(voted, _)| *voted != next).map(|(_, vote)| *vote);
            lies.push(Message::Votes { next, votes: old.take(10).collect() });
        }
        if let Some(Hint { claim, heartbeat }) = node.hint() {
            // The leader's next heartbeat: valid if the liar is the leader, else forged.
            let hint = Hint { claim, heartbeat: heartbeat + 1 };
            lies.push(Message::Heartbeat(Heartbeat::sign(GROUP, hint, None, &self.signer)));
        }
        lies.extend(self.add_own_vote(epoch));
        let mut lies: Vec<_> = lies.iter().map(|lie| lie.encode().unwrap()).collect();
        for _ in 0..20 {
            let last = self.overheard.len().saturating_sub(1) as u64;
            let at = usize::try_from(context.rng().between(0, last)).unwrap();
            lies.extend(self.overheard.get(at).cloned());
        }
        let me = context.me();
        for to in (0..context.nodes()).filter(|to| *to != me) {
            for lie in &lies {
                context.send(to, lie.clone());
            }
        }
    }

    /// Adds its own vote to the votes of an epoch that has begun, if its tie-breaker is the highest. This lie is a
    /// valid proof.
    fn add_own_vote(&self, epoch: u64) -> Option<Message> {
        let (next, _) = *self.votes.iter().rfind(|(voted, _)| voted.epoch == epoch)?;
        let mine = EpochVote::sign(GROUP, next, None, &self.signer);
        let ranks_higher = |vote: &&EpochVote| {
            let certificate = EpochCertificate { next, votes: vec![mine, **vote] };
            vote.by != mine.by && certificate.claim().is_some_and(|claim| claim.leader == mine.by)
        };
        let same = self.votes.iter().filter(|(voted, _)| *voted == next).map(|(_, vote)| vote);
        let outranked = same.filter(ranks_higher).map(|vote| (vote.by, *vote));
        let mut votes: BTreeMap<_, _> = outranked.take(MOST).collect();
        votes.insert(mine.by, mine);
        let certificate = EpochCertificate::gather(next, &votes, self.majority)?;
        Some(Message::Proof { certificate, beat: None })
    }
}
