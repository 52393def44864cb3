//! The messages and their transport.

use holdoff_paxos::Ballot;
use holdoff_paxos::slot::PromiseReply;

use super::Params;
use crate::kernel::{Chance, mix};

/// A member's operation: its number.
pub(super) type Operation = u32;

/// A request of a member to an acceptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Prepare(Ballot),
    Accept(Ballot, Operation),
}

/// A message of an acceptor to a member.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// The answer to a prepare.
    Promise(PromiseReply<Operation>),
    /// An accept was refused because of a higher ballot.
    Refused { ballot: Ballot, promised: Ballot },
    /// The acceptor has accepted; every member receives this message.
    Accepted(Ballot, Operation),
}

/// Links with latency and loss; each sender has its own random number stream.
pub(super) struct Wire<'a> {
    params: &'a Params,
    members: Vec<Chance>,
    acceptors: Vec<Chance>,
    pub(super) lost: u64,
}

/// Separates the streams of links from those of members.
const MEMBERS: u64 = 1;
const ACCEPTORS: u64 = 2;

impl<'a> Wire<'a> {
    pub(super) fn new(params: &'a Params, seed: u64) -> Self {
        let streams =
            |kind, number| (0..u64::from(number)).map(|sender| Chance::of(mix(seed, kind), sender)).collect();
        Self {
            params,
            members: streams(MEMBERS, params.clients),
            acceptors: streams(ACCEPTORS, params.acceptors),
            lost: 0,
        }
    }

    /// Draws the travel time of a member's message; `None` if it is lost.
    pub(super) fn by_member(&mut self, number: u32) -> Option<u64> {
        let chance = self.members.get_mut(number as usize)?;
        travel(self.params, chance, &mut self.lost)
    }

    /// Draws the travel time of an acceptor's message; `None` if it is lost.
    pub(super) fn by_acceptor(&mut self, number: u32) -> Option<u64> {
        let chance = self.acceptors.get_mut(number as usize)?;
        travel(self.params, chance, &mut self.lost)
    }
}

fn travel(params: &Params, chance: &mut Chance, lost: &mut u64) -> Option<u64> {
    let hop_us = params.hop.draw_us(chance);
    let is_lost = chance.happens(params.loss);
    *lost += u64::from(is_lost);
    (!is_lost).then_some(hop_us)
}
