//! What is said, and how it travels.

use holdoff_paxos::Ballot;
use holdoff_paxos::slot::PromiseReply;

use super::Params;
use crate::kernel::{Chance, mix};

/// A member's operation: its number.
pub(super) type Operation = u32;

/// What a member asks of an acceptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Prepare(Ballot),
    Accept(Ballot, Operation),
}

/// What an acceptor says to a member.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// The answer to a prepare.
    Promise(PromiseReply<Operation>),
    /// An accept was refused for a higher ballot.
    Refused { ballot: Ballot, promised: Ballot },
    /// It has accepted; everybody hears of it.
    Accepted(Ballot, Operation),
}

/// Links that take time and lose messages; each sender has chance of its own.
pub(super) struct Wire<'a> {
    params: &'a Params,
    members: Vec<Chance>,
    acceptors: Vec<Chance>,
    pub(super) lost: u64,
}

/// Keeps the streams of links apart from those of members.
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

    /// How long a member's message travels; `None` if it gets lost.
    pub(super) fn by_member(&mut self, number: u32) -> Option<u64> {
        let chance = self.members.get_mut(number as usize)?;
        travel(self.params, chance, &mut self.lost)
    }

    /// How long an acceptor's message travels; `None` if it gets lost.
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
