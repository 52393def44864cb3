//! Callers that wait until the device has applied every slot that was decided before their call.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_paxos::{Configuration, NodeId, Slot, Tally};
use tokio::sync::oneshot;

use super::Error;
use crate::AcceptorReply;

/// The time after which the device repeats a request to an acceptor that has not answered.
pub(super) const AGAIN: Duration = Duration::from_millis(300);
/// The maximum number of callers that wait.
const MOST: usize = 256;

/// The callers that wait.
///
/// A majority has accepted every slot that was decided before a call. So when a majority has reported its latest slot
/// since the call, and the device has applied all slots up to these, no decided slot is missing.
#[derive(Default)]
pub(super) struct CatchUps {
    last: u64,
    waiting: Vec<CatchUp>,
}

struct CatchUp {
    tag: u64,
    reported: BTreeMap<NodeId, Slot>,
    reply: oneshot::Sender<Result<Slot, Error>>,
}

impl CatchUps {
    /// Adds a caller, or answers it with [`Error::Busy`] if the limit is reached.
    pub(super) fn take(&mut self, reply: oneshot::Sender<Result<Slot, Error>>) {
        self.waiting.retain(|reader| !reader.reply.is_closed());
        if self.waiting.len() >= MOST {
            return drop(reply.send(Err(Error::Busy)));
        }
        self.last += 1;
        self.waiting.push(CatchUp { tag: self.last, reported: BTreeMap::new(), reply });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Processes an acceptor's reply to the request with this tag.
    pub(super) fn record_reply(&mut self, from: NodeId, tag: u64, reply: &AcceptorReply) {
        let AcceptorReply::History { latest, .. } = reply else { return };
        // The reply to a later request answers earlier callers, too.
        for reader in self.waiting.iter_mut().filter(|reader| reader.tag <= tag) {
            reader.reported.entry(from).or_insert(*latest);
        }
    }

    /// Returns the acceptors to ask again, and the tag of the request.
    pub(super) fn unanswered(&self, of: &Configuration) -> Vec<(NodeId, u64)> {
        let is_unanswered =
            |node: &&NodeId| self.waiting.iter().any(|reader| !reader.reported.contains_key(node));
        of.acceptors().iter().filter(is_unanswered).map(|node| (*node, self.last)).collect()
    }

    /// Answers the callers whose condition holds.
    pub(super) fn answer(&mut self, applied: Slot, of: &Configuration) {
        for reader in std::mem::take(&mut self.waiting) {
            let mut tally = Tally::default();
            for (node, _) in reader.reported.iter().filter(|(_, latest)| **latest <= applied) {
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
    fn a_catch_up_ends_when_a_majority_has_answered_and_its_slots_are_applied() {
        let three = Configuration::new([1, 2, 3].map(NodeId)).unwrap();
        let history = |latest| AcceptorReply::History { votes: Vec::new(), latest: Slot(latest) };
        let (mut catch_ups, (reply, mut answer)) = (CatchUps::default(), oneshot::channel());
        catch_ups.record_reply(NodeId(3), 1, &history(0));
        catch_ups.take(reply);
        assert_eq!(catch_ups.unanswered(&three).len(), 3, "a reply before the call does not count");
        catch_ups.record_reply(NodeId(1), 0, &history(0));
        catch_ups.record_reply(NodeId(1), 1, &history(1));
        catch_ups.record_reply(NodeId(2), 1, &history(2));
        catch_ups.answer(Slot(1), &three);
        assert!(answer.try_recv().is_err(), "slot 2 may be decided and is not applied");
        catch_ups.answer(Slot(2), &three);
        assert!(matches!(answer.try_recv(), Ok(Ok(Slot(2)))));
        assert!(catch_ups.is_empty());
    }
}
