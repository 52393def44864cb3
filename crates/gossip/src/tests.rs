//! Tests of the properties that hold whatever messages arrive.

mod fuzz;
mod laws;

use crate::simulation::node::{GROUP, TestSigner, key};
use crate::{
    Electorate, EpochCertificate, EpochVote, Heartbeat, Hint, LeaderClaim, Message, NextEpoch, Settings,
    Watch,
};

/// Five voters, the last two of which lie.
const VOTERS: u32 = 5;
const HONEST: u32 = 3;

fn electorate() -> Electorate {
    Electorate::new((0..VOTERS).map(key)).unwrap()
}

fn watch(me: u32) -> Watch<TestSigner, TestSigner> {
    Watch::new(GROUP, TestSigner(key(me)), TestSigner(key(me)), electorate(), &Settings::default(), 0)
}

fn certificate(epoch: u64, voters: &[u32], nominee: Option<u32>) -> EpochCertificate {
    certificate_after(epoch, None, voters, nominee)
}

fn certificate_after(
    epoch: u64,
    previous_leader: Option<u32>,
    voters: &[u32],
    nominee: Option<u32>,
) -> EpochCertificate {
    let next = NextEpoch { epoch, previous_leader: previous_leader.map(key) };
    let vote = |voter: &u32| EpochVote::sign(GROUP, next, nominee.map(key), &TestSigner(key(*voter)));
    let mut votes: Vec<_> = voters.iter().map(vote).collect();
    votes.sort_by_key(|vote| vote.by);
    EpochCertificate { next, votes }
}

fn beat(claim: LeaderClaim, heartbeat: u64, by: u32) -> Heartbeat {
    Heartbeat::sign(GROUP, Hint { claim, heartbeat }, None, &TestSigner(key(by)))
}

fn proof(certificate: EpochCertificate) -> Message {
    Message::Proof { certificate, beat: None }
}
