//! Batching: consecutive append messages to the same node become a single message.

use super::Append;
use crate::NodeId;

impl<V> Append<V> {
    fn len(&self) -> usize {
        usize::from(self.entry.is_some()) + self.more.len()
    }

    /// Moves the entries of the leader's next message into this message, if they are consecutive and fit into a batch.
    fn take_up(&mut self, next: &mut Self, batch: usize) -> bool {
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
pub fn join<O, V>(
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
            let before = known.as_ref().and_then(|(_, place)| joined.get_mut(*place)).and_then(&append);
            if let (Some(before), Some(next)) = (before, append(&mut output))
                && before.take_up(next, batch)
            {
                continue;
            }
            match known {
                Some((_, place)) => *place = joined.len(),
                None => latest.push((node, joined.len())),
            }
        }
        joined.push(output);
    }
    *outputs = joined;
}
