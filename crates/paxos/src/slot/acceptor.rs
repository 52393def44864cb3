//! The acceptor: it remembers the highest promise and the accepted value of a slot.

use serde::{Deserialize, Serialize};

use super::{AcceptReply, PromiseReply, Vote};
use crate::{Ballot, Deferred};

/// The state of one acceptor for one slot.
///
/// It is the only state that two connections may contend for. The caller must run one writer for each slot and must
/// have a reliable disk. After a disk error the caller must not use the acceptor again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acceptor<V> {
    promised: Option<Ballot>,
    accepted: Option<Vote<V>>,
}

/// The record that an acceptor must have on disk before it sends its reply.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Record<V> {
    /// The acceptor accepts nothing below this ballot.
    Promised(Ballot),
    /// The acceptor has accepted this value, which also promises its ballot.
    Accepted(Vote<V>),
}

impl<V> Default for Acceptor<V> {
    fn default() -> Self {
        Self { promised: None, accepted: None }
    }
}

impl<V: Clone> Acceptor<V> {
    /// Applies a record that an earlier incarnation has stored. The caller applies all records in the order they were
    /// stored.
    pub fn restore(&mut self, record: Record<V>) {
        let (ballot, vote) = match record {
            Record::Promised(ballot) => (ballot, None),
            Record::Accepted(vote) => (vote.ballot, Some(vote)),
        };
        self.promised = self.promised.max(Some(ballot));
        self.accepted = vote.or_else(|| self.accepted.take());
    }

    /// Returns the highest ballot that was promised or accepted.
    pub fn promised(&self) -> Option<Ballot> {
        self.promised
    }

    /// Returns the value that was accepted under the highest ballot.
    pub fn accepted(&self) -> Option<&Vote<V>> {
        self.accepted.as_ref()
    }

    /// Answers a prepare request. A repeated request gets the same answer and stores nothing.
    pub fn prepare(&mut self, ballot: Ballot) -> Deferred<Record<V>, PromiseReply<V>> {
        match self.promised {
            Some(promised) if promised > ballot => Deferred::ready(PromiseReply::Nack { ballot, promised }),
            Some(promised) if promised == ballot => Deferred::ready(self.promise(ballot)),
            _ => {
                self.promised = Some(ballot);
                let reply = self.promise(ballot);
                Deferred::until_stored(Record::Promised(ballot), reply)
            }
        }
    }

    /// Answers an accept request. A repeated request under the same ballot is accepted again and stores nothing.
    pub fn accept(&mut self, ballot: Ballot, value: V) -> Deferred<Record<V>, AcceptReply> {
        if let Some(promised) = self.promised.filter(|promised| *promised > ballot) {
            return Deferred::ready(AcceptReply::Nack { ballot, promised });
        }
        let reply = AcceptReply::Accepted { ballot };
        if self.accepted.as_ref().is_some_and(|vote| vote.ballot == ballot) {
            return Deferred::ready(reply);
        }
        let vote = Vote { ballot, value };
        self.promised = Some(ballot);
        self.accepted = Some(vote.clone());
        Deferred::until_stored(Record::Accepted(vote), reply)
    }

    fn promise(&self, ballot: Ballot) -> PromiseReply<V> {
        PromiseReply::Promise { ballot, accepted: self.accepted.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{NodeId, Slot};

    fn ballot(attempt: u64) -> Ballot {
        Ballot::new(Slot(1), attempt, NodeId(1))
    }

    fn release<R, M>(held: Deferred<R, M>) -> M {
        held.release(|_| Ok::<_, Infallible>(())).unwrap()
    }

    #[test]
    fn a_promise_binds_and_a_refusal_names_the_promised_ballot() {
        let mut acceptor = Acceptor::default();
        let _ = release(acceptor.prepare(ballot(2)));
        let refused = release(acceptor.prepare(ballot(1)));
        assert_eq!(refused, PromiseReply::Nack { ballot: ballot(1), promised: ballot(2) });
        let refused = release(acceptor.accept(ballot(1), "late"));
        assert_eq!(refused, AcceptReply::Nack { ballot: ballot(1), promised: ballot(2) });
        assert_eq!(release(acceptor.accept(ballot(2), "a")), AcceptReply::Accepted { ballot: ballot(2) });
        let promise = release(acceptor.prepare(ballot(3)));
        let accepted = Some(Vote { ballot: ballot(2), value: "a" });
        assert_eq!((acceptor.promised(), acceptor.accepted()), (Some(ballot(3)), accepted.as_ref()));
        assert_eq!(promise, PromiseReply::Promise { ballot: ballot(3), accepted });
    }

    #[test]
    fn a_repeated_request_gets_the_same_answer_and_stores_nothing() {
        let mut acceptor = Acceptor::default();
        for attempt in [1, 2] {
            let [first, again] = [(), ()].map(|()| acceptor.prepare(ballot(attempt)));
            assert!(first.record().is_some() && again.record().is_none());
            assert_eq!(release(first), release(again));
            let [first, again] = [(), ()].map(|()| acceptor.accept(ballot(attempt), "a"));
            assert!(first.record().is_some() && again.record().is_none());
            assert_eq!(release(first), release(again));
        }
    }

    #[test]
    fn a_restarted_acceptor_continues_from_its_records() {
        let (mut acceptor, mut again) = (Acceptor::default(), Acceptor::default());
        let mut records = Vec::new();
        for (attempt, accepts) in [(1, true), (2, false), (5, true), (7, false), (6, false)] {
            records.extend(acceptor.prepare(ballot(attempt)).record().cloned());
            if accepts {
                records.extend(acceptor.accept(ballot(attempt), attempt).record().cloned());
            }
        }
        for record in records {
            again.restore(record);
        }
        assert_eq!(again, acceptor);
    }
}
