//! A voter that says whatever might help it: that it leads, by epochs out of nowhere, by old news, in others' names.

use std::collections::BTreeMap;

use holdoff_sim::kernel::{Around, NodeId};

use super::keys::{GROUP, Pen, key};
use super::machine::Machine;
use crate::{Beat, Certificate, Claim, Hint, Message, Next, Node, Signature, Vote};

pub(super) struct Liar {
    pen: Pen,
    majority: usize,
    overheard: Vec<Vec<u8>>,
    votes: Vec<(Next, Vote)>,
    said: u64,
}

const MOST: usize = 500;

impl Liar {
    pub(super) fn new(me: NodeId, majority: usize) -> Self {
        Self { pen: Pen(key(me)), majority, overheard: Vec::new(), votes: Vec::new(), said: 0 }
    }

    /// Keeps everything, to say it again some day.
    pub(super) fn overhear(&mut self, message: &Message, bytes: &[u8]) {
        if self.overheard.len() < MOST {
            self.overheard.push(bytes.to_vec());
        }
        if let Message::Votes { next, votes } = message {
            let room = MOST.saturating_sub(self.votes.len());
            self.votes.extend(votes.iter().take(room).map(|vote| (*next, *vote)));
        }
    }

    /// It begins when others have voted without it.
    pub(super) fn is_patient(&self) -> bool {
        self.said < 20
    }

    pub(super) fn lie(&mut self, node: &Node<Pen, Pen>, around: &mut Around<'_, Machine>) {
        self.said += 1;
        if self.is_patient() {
            return;
        }
        let me = self.pen.0;
        let epoch = node.hint().map_or(0, |hint| hint.claim.epoch);
        let mut lies = Vec::new();
        for epoch in [epoch, epoch + 1, u64::MAX] {
            let claim = Claim { epoch, rank: u32::MAX, leader: me };
            for heartbeat in [self.said, u64::MAX] {
                lies.push(Message::Beat(Beat::sign(GROUP, Hint { claim, heartbeat }, Some(me), &self.pen)));
            }
            lies.push(Message::Ask(Some(claim)));
            let over = node.hint().map(|hint| hint.claim.leader);
            let next = Next { epoch, over };
            let mine = Vote::sign(GROUP, next, Some(me), &self.pen);
            lies.push(Message::Votes { next, votes: vec![mine] });
            lies.push(Message::Proof { certificate: Certificate { next, votes: vec![mine; 2] }, beat: None });
            // In the names of others, and with what they have signed for other epochs.
            let forge = |by| Vote { by, wish: Some(me), signature: Signature::from_bytes([1; 64]) };
            let forged: Vec<_> = (0..around.nodes().min(6)).map(|node| forge(key(node))).collect();
            lies.push(Message::Votes { next, votes: forged.clone() });
            lies.push(Message::Proof { certificate: Certificate { next, votes: forged }, beat: None });
            let old = self.votes.iter().filter(|(voted, _)| *voted != next).map(|(_, vote)| *vote);
            lies.push(Message::Votes { next, votes: old.take(10).collect() });
        }
        if let Some(Hint { claim, heartbeat }) = node.hint() {
            // As the leader: truly, if it is one, and else not.
            let hint = Hint { claim, heartbeat: heartbeat + 1 };
            lies.push(Message::Beat(Beat::sign(GROUP, hint, None, &self.pen)));
        }
        lies.extend(self.stuff(epoch));
        let mut lies: Vec<_> = lies.iter().map(|lie| lie.encode().unwrap()).collect();
        for _ in 0..20 {
            let last = self.overheard.len().saturating_sub(1) as u64;
            let at = usize::try_from(around.chance().between(0, last)).unwrap();
            lies.extend(self.overheard.get(at).cloned());
        }
        let me = around.me();
        for to in (0..around.nodes()).filter(|to| *to != me) {
            for lie in &lies {
                around.send(to, lie.clone());
            }
        }
    }

    /// Puts its own vote to those of an epoch that has begun, where it is luckier than they: the one lie that is a proof.
    fn stuff(&self, epoch: u64) -> Option<Message> {
        let (next, _) = *self.votes.iter().rfind(|(voted, _)| voted.epoch == epoch)?;
        let mine = Vote::sign(GROUP, next, None, &self.pen);
        let is_luckier = |vote: &&Vote| {
            let certificate = Certificate { next, votes: vec![mine, **vote] };
            vote.by != mine.by && certificate.claim().is_some_and(|claim| claim.leader == mine.by)
        };
        let same = self.votes.iter().filter(|(voted, _)| *voted == next).map(|(_, vote)| vote);
        let less_lucky = same.filter(is_luckier).map(|vote| (vote.by, *vote));
        let mut votes: BTreeMap<_, _> = less_lucky.take(MOST).collect();
        votes.insert(mine.by, mine);
        let certificate = Certificate::gather(next, &votes, self.majority)?;
        Some(Message::Proof { certificate, beat: None })
    }
}
