//! The acceptors.

use std::convert::Infallible;

use holdoff_paxos::Held;
use holdoff_paxos::slot::{AcceptReply, Acceptor};

use super::wire::{Ask, Operation, Said};

/// The acceptors, each with its state in every slot so far. Their disks take no time.
pub(super) struct Panel(Vec<Vec<Acceptor<Operation>>>);

impl Panel {
    pub(super) fn new(acceptors: u32) -> Self {
        Self((0..acceptors).map(|_| Vec::new()).collect())
    }

    /// Returns the reply of an acceptor about a slot.
    pub(super) fn answer(&mut self, number: u32, slot: usize, ask: Ask) -> Option<Said> {
        let slots = self.0.get_mut(number as usize)?;
        if slots.len() <= slot {
            slots.resize_with(slot + 1, Acceptor::default);
        }
        let acceptor = slots.get_mut(slot)?;
        Some(match ask {
            Ask::Prepare(ballot) => Said::Promise(stored(acceptor.prepare(ballot))),
            Ask::Accept(ballot, operation) => match stored(acceptor.accept(ballot, operation)) {
                AcceptReply::Accepted { ballot } => Said::Accepted(ballot, operation),
                AcceptReply::Nack { ballot, promised } => Said::Refused { ballot, promised },
            },
        })
    }
}

/// Releases a message whose record is on a disk that never fails.
pub(super) fn stored<R, M>(held: Held<R, M>) -> M {
    match held.release(|_| Ok::<(), Infallible>(())) {
        Ok(message) => message,
        Err(never) => match never {},
    }
}
