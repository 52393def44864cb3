//! The messages between nodes of the log, and the batching of consecutive append messages.

use serde::{Deserialize, Serialize};

use super::{Entry, LogId, Snapshot, Term};
use crate::{NodeId, Slot};

/// A message from a node to another. Every answer names the term that it answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message<V, S> {
    /// A candidate asks for a vote, or for a pre-vote.
    RequestVote(VoteRequest),
    /// A voter's answer.
    VoteReply {
        /// Whether the answer belongs to a pre-vote.
        is_pre_vote: bool,
        /// The candidate's term.
        term: Term,
        /// Whether the voter grants the vote.
        granted: bool,
        /// The voter's promise for the configuration of that term.
        promised: Term,
        /// The decided change that began the voter's configuration, if that configuration is later than the term's. The
        /// candidate may have this entry without knowing that it is decided.
        decided_change: Option<LogId>,
    },
    /// A leader sends entries. Without entries the message is a heartbeat. Boxed, so that the other messages are small.
    Append(Box<Append<V>>),
    /// A leader offers its snapshot, because it has compacted the entries that the follower needs.
    InstallSnapshot {
        /// The leader's term.
        term: Term,
        /// The last slot of the log that the leader began with.
        inherited: Slot,
        /// The state up to the slot where the leader's entries begin.
        snapshot: Snapshot<S>,
    },
    /// The sender has the leader's log up to this slot.
    AppendAccepted {
        /// The leader's term.
        term: Term,
        /// The last slot that is equal in both logs.
        slot: Slot,
    },
    /// The sender cannot append the entries that it was sent.
    AppendRejected {
        /// The leader's term.
        term: Term,
        /// The slot after which the leader continues.
        have: Slot,
    },
    /// The sender has promised a later term.
    StaleTerm {
        /// The leader's term.
        term: Term,
        /// The promise that caused the refusal.
        promised: Term,
        /// As in [`Message::VoteReply`].
        decided_change: Option<LogId>,
    },
    /// The leader of this term has stepped down in favour of another node (leadership transfer; Raft's `TimeoutNow`).
    TimeoutNow {
        /// The term that has ended.
        term: Term,
        /// The target, which has the leader's whole log.
        to: NodeId,
    },
}

/// A candidate's request for a vote or a pre-vote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteRequest {
    /// Whether it is a pre-vote: a pre-vote binds no voter.
    pub is_pre_vote: bool,
    /// The term that the candidate would lead in.
    pub term: Term,
    /// The term in which the candidate last accepted its log as a leader's.
    pub accepted: Term,
    /// The candidate's last slot.
    pub last: Slot,
}

/// A leader's append request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Append<V> {
    /// The leader's term.
    pub term: Term,
    /// The entry that precedes the first entry sent.
    pub before: LogId,
    /// The next entry.
    pub entry: Option<Entry<V>>,
    /// The entries after it, for a follower that is behind.
    pub more: Vec<Entry<V>>,
    /// The last slot of the log that the leader began with. A follower that has the log up to it has accepted it in
    /// this term.
    pub inherited: Slot,
    /// The last slot that is known to be decided.
    pub decided: Slot,
}

impl<V> Append<V> {
    fn len(&self) -> usize {
        usize::from(self.entry.is_some()) + self.more.len()
    }

    /// Moves the entries of the leader's next message into this message, if they are consecutive and fit into a batch.
    fn absorb(&mut self, next: &mut Self, batch: usize) -> bool {
        let last = self.more.last().or(self.entry.as_ref()).map_or(self.before.term, |entry| entry.term);
        let through = self.before.slot.0.checked_add(self.len() as u64);
        let follows = (through, last) == (Some(next.before.slot.0), next.before.term);
        let is_same = (self.term, self.inherited) == (next.term, next.inherited);
        if !follows || !is_same || self.len() + next.len() > batch {
            return false;
        }
        let mut entries = next.entry.take().into_iter().chain(std::mem::take(&mut next.more));
        if self.entry.is_none() {
            self.entry = entries.next();
        }
        self.more.extend(entries);
        self.decided = self.decided.max(next.decided);
        true
    }
}

/// Joins consecutive append messages to the same node, up to `batch` entries a message.
///
/// `to` returns the receiver of an output, if the output is a message. `append` returns the append request of an
/// output, if it can be joined. The order of the messages to a node stays the same: entries are not moved across
/// another message to the same node. Outputs that are not messages stay where they are.
pub fn coalesce_appends<O, V>(
    outputs: &mut Vec<O>,
    batch: usize,
    to: impl Fn(&O) -> Option<NodeId>,
    append: impl Fn(&mut O) -> Option<&mut Append<V>>,
) {
    let mut joined: Vec<O> = Vec::with_capacity(outputs.len());
    // For each node, the position of the last message to it. There are few nodes.
    let mut latest: Vec<(NodeId, usize)> = Vec::new();
    for mut output in outputs.drain(..) {
        if let Some(node) = to(&output) {
            let known = latest.iter_mut().find(|(of, _)| *of == node);
            let before = known.as_ref().and_then(|(_, index)| joined.get_mut(*index)).and_then(&append);
            if let (Some(before), Some(next)) = (before, append(&mut output))
                && before.absorb(next, batch)
            {
                continue;
            }
            match known {
                Some((_, index)) => *index = joined.len(),
                None => latest.push((node, joined.len())),
            }
        }
        joined.push(output);
    }
    *outputs = joined;
}
