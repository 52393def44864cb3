//! Those who want to know what is decided by now, and not what was known here before.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_paxos::{Configuration, NodeId, Slot, Tally};
use tokio::sync::oneshot;

use super::Error;
use crate::Tell;

/// Whoever has not answered is asked again after this.
pub(super) const AGAIN: Duration = Duration::from_millis(300);
/// As many read at once.
const MOST: usize = 256;

/// Those who read.
///
/// Whatever was decided before somebody asks was accepted by a majority; so when each of a majority has said since
/// then how far it is, and all of that is carried out here, nothing is missing.
#[derive(Default)]
pub(super) struct Readers {
    last: u64,
    waiting: Vec<Reader>,
}

struct Reader {
    tag: u64,
    heard: BTreeMap<NodeId, Slot>,
    reply: oneshot::Sender<Result<Slot, Error>>,
}

impl Readers {
    /// Takes a reader in, or tells it that there is no room.
    pub(super) fn take(&mut self, reply: oneshot::Sender<Result<Slot, Error>>) {
        self.waiting.retain(|reader| !reader.reply.is_closed());
        if self.waiting.len() >= MOST {
            return drop(reply.send(Err(Error::Busy)));
        }
        self.last += 1;
        self.waiting.push(Reader { tag: self.last, heard: BTreeMap::new(), reply });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// An acceptor has answered what was asked under this tag.
    pub(super) fn hear(&mut self, from: NodeId, tag: u64, tell: &Tell) {
        let Tell::History { latest, .. } = tell else { return };
        // What was asked later answers those who asked before, too.
        for reader in self.waiting.iter_mut().filter(|reader| reader.tag <= tag) {
            reader.heard.entry(from).or_insert(*latest);
        }
    }

    /// Whom to ask again, and under which tag.
    pub(super) fn unheard(&self, of: &Configuration) -> Vec<(NodeId, u64)> {
        let is_unheard = |node: &&NodeId| self.waiting.iter().any(|reader| !reader.heard.contains_key(node));
        of.acceptors().iter().filter(is_unheard).map(|node| (*node, self.last)).collect()
    }

    /// Answers those who know enough.
    pub(super) fn answer(&mut self, applied: Slot, of: &Configuration) {
        for reader in std::mem::take(&mut self.waiting) {
            let mut tally = Tally::default();
            for (node, _) in reader.heard.iter().filter(|(_, latest)| **latest <= applied) {
                tally.count(*node, of);
            }
            if tally.is_quorum(of) {
                let _ = reader.reply.send(Ok(applied));
            } else if !reader.reply.is_closed() {
                self.waiting.push(reader);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_must_have_been_heard_since_and_carried_out() {
        let three = Configuration::new([1, 2, 3].map(NodeId)).unwrap();
        let said = |latest| Tell::History { votes: Vec::new(), latest: Slot(latest) };
        let (mut readers, (reply, mut answer)) = (Readers::default(), oneshot::channel());
        readers.hear(NodeId(3), 1, &said(0));
        readers.take(reply);
        assert_eq!(readers.unheard(&three).len(), 3, "what was said before does not count");
        readers.hear(NodeId(1), 0, &said(0));
        readers.hear(NodeId(1), 1, &said(1));
        readers.hear(NodeId(2), 1, &said(2));
        readers.answer(Slot(1), &three);
        assert!(answer.try_recv().is_err(), "slot 2 may be decided, and is not carried out here");
        readers.answer(Slot(2), &three);
        assert!(matches!(answer.try_recv(), Ok(Ok(Slot(2)))));
        assert!(readers.is_empty());
    }
}
