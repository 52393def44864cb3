//! The messages, their transport, and the acceptors that answer them.

use std::convert::Infallible;

use holdoff_paxos::slot::{AcceptReply, Acceptor, PromiseReply};
use holdoff_paxos::{Ballot, Deferred};

use super::Params;
use crate::kernel::{SimRng, mix};

/// A member's operation: its number.
pub(super) type Operation = u32;

/// A request of a member to an acceptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum AcceptorRequest {
    Prepare(Ballot),
    Accept(Ballot, Operation),
}

/// A message of an acceptor to a member.
#[derive(Clone, Debug)]
pub(super) enum AcceptorMessage {
    /// The answer to a prepare.
    Promise(PromiseReply<Operation>),
    /// An accept was refused because of a higher ballot.
    Refused { ballot: Ballot, promised: Ballot },
    /// The acceptor has accepted; every member receives this message.
    Accepted(Ballot, Operation),
}

/// Links with latency and loss; each sender has its own random number stream.
pub(super) struct Network<'a> {
    params: &'a Params,
    members: Vec<SimRng>,
    acceptors: Vec<SimRng>,
    pub(super) lost: u64,
}

/// Separates the streams of links from those of members.
const MEMBERS: u64 = 1;
const ACCEPTORS: u64 = 2;

impl<'a> Network<'a> {
    pub(super) fn new(params: &'a Params, seed: u64) -> Self {
        let streams =
            |kind, number| (0..u64::from(number)).map(|sender| SimRng::of(mix(seed, kind), sender)).collect();
        Self {
            params,
            members: streams(MEMBERS, params.clients),
            acceptors: streams(ACCEPTORS, params.acceptors),
            lost: 0,
        }
    }

    /// Draws the travel time of a member's message; `None` if it is lost.
    pub(super) fn by_member(&mut self, number: u32) -> Option<u64> {
        let rng = self.members.get_mut(number as usize)?;
        travel(self.params, rng, &mut self.lost)
    }

    /// Draws the travel time of an acceptor's message; `None` if it is lost.
    pub(super) fn by_acceptor(&mut self, number: u32) -> Option<u64> {
        let rng = self.acceptors.get_mut(number as usize)?;
        travel(self.params, rng, &mut self.lost)
    }
}

fn travel(params: &Params, rng: &mut SimRng, lost: &mut u64) -> Option<u64> {
    let hop_us = params.hop.draw_us(rng);
    let is_lost = rng.happens(params.loss);
    *lost += u64::from(is_lost);
    (!is_lost).then_some(hop_us)
}

/// The acceptors, each with its state in every slot so far. Their disks take no time.
pub(super) struct Acceptors(Vec<Vec<Acceptor<Operation>>>);

impl Acceptors {
    pub(super) fn new(acceptors: u32) -> Self {
        Self((0..acceptors).map(|_| Vec::new()).collect())
    }

    /// Returns the reply of an acceptor about a slot.
    pub(super) fn answer(
        &mut self,
        number: u32,
        slot: usize,
        request: AcceptorRequest,
    ) -> Option<AcceptorMessage> {
        let slots = self.0.get_mut(number as usize)?;
        if slots.len() <= slot {
            slots.resize_with(slot + 1, Acceptor::default);
        }
        let acceptor = slots.get_mut(slot)?;
        Some(match request {
            AcceptorRequest::Prepare(ballot) => AcceptorMessage::Promise(stored(acceptor.prepare(ballot))),
            AcceptorRequest::Accept(ballot, operation) => match stored(acceptor.accept(ballot, operation)) {
                AcceptReply::Accepted { ballot } => AcceptorMessage::Accepted(ballot, operation),
                AcceptReply::Nack { ballot, promised } => AcceptorMessage::Refused { ballot, promised },
            },
        })
    }
}

/// Releases a message whose record is on a disk that never fails.
pub(super) fn stored<R, M>(held: Deferred<R, M>) -> M {
    match held.release(|_| Ok::<(), Infallible>(())) {
        Ok(message) => message,
        Err(never) => match never {},
    }
}
