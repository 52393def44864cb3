//! The slot machine: a proposer and three acceptors, both phases for every slot.

use std::convert::Infallible;
use std::hint::black_box;

use holdoff_paxos::slot::{Acceptor, Prepared, Preparing, Voted};
use holdoff_paxos::{Configuration, Held, NodeId, Slot};

use super::Three;

pub(super) struct Slots {
    configuration: Configuration,
    next: Slot,
}

impl Slots {
    pub(super) fn new() -> Option<Self> {
        let configuration = Configuration::new([1, 2, 3].map(NodeId)).ok()?;
        Some(Self { configuration, next: Slot(1) })
    }
}

impl Three for Slots {
    fn decide(&mut self, value: u64) -> bool {
        let slot = self.next;
        self.next = slot.next();
        let mut acceptors = [1, 2, 3].map(|node| (NodeId(node), Acceptor::default()));
        let preparing = told(Preparing::begin(slot, 1, NodeId(7), self.configuration.clone()));
        let ballot = preparing.ballot();
        let (mut preparing, mut free) = (Some(preparing), None);
        for (node, acceptor) in &mut acceptors {
            // All acceptors receive the request; replies after a majority are ignored.
            let reply = told(acceptor.prepare(ballot));
            match preparing.take().map(|preparing| preparing.answer(*node, reply)) {
                Some(Prepared::Waiting(still)) => preparing = Some(still),
                Some(Prepared::Free(now)) => free = Some(now),
                _ => {}
            }
        }
        let Some(free) = free else { return false };
        let (mut accepting, mut chosen) = (Some(free.propose(value)), None);
        for (node, acceptor) in &mut acceptors {
            let reply = told(acceptor.accept(ballot, value));
            match accepting.take().map(|accepting| accepting.answer(*node, reply)) {
                Some(Voted::Waiting(still)) => accepting = Some(still),
                Some(Voted::Chosen(vote)) => chosen = Some(vote),
                _ => {}
            }
        }
        black_box(&acceptors);
        chosen.is_some_and(|vote| vote.value == value)
    }

    fn forget(&mut self) {}
}

/// Releases the message at once, because memory needs no sync.
fn told<R, M>(held: Held<R, M>) -> M {
    let Ok(message) = held.release(|record| {
        black_box(record);
        Ok::<_, Infallible>(())
    });
    message
}
