//! Tests of the properties that hold whatever messages arrive.

mod arcs;
mod fuzz;
mod laws;

use crate::simulation::keys::{GROUP, Pen, key};
use crate::{Beat, Certificate, Claim, Electorate, Hint, Message, Next, Settings, Vote, Watch};

/// Five voters, the last two of which lie.
const VOTERS: u32 = 5;
const HONEST: u32 = 3;

fn electorate() -> Electorate {
    Electorate::new((0..VOTERS).map(key)).unwrap()
}

fn watch(me: u32) -> Watch<Pen, Pen> {
    Watch::new(GROUP, Pen(key(me)), Pen(key(me)), electorate(), &Settings::default(), 0)
}

fn certificate(epoch: u64, voters: &[u32], wish: Option<u32>) -> Certificate {
    over(epoch, None, voters, wish)
}

fn over(epoch: u64, over: Option<u32>, voters: &[u32], wish: Option<u32>) -> Certificate {
    let next = Next { epoch, over: over.map(key) };
    let vote = |voter: &u32| Vote::sign(GROUP, next, wish.map(key), &Pen(key(*voter)));
    let mut votes: Vec<_> = voters.iter().map(vote).collect();
    votes.sort_by_key(|vote| vote.by);
    Certificate { next, votes }
}

fn beat(claim: Claim, heartbeat: u64, by: u32) -> Beat {
    Beat::sign(GROUP, Hint { claim, heartbeat }, None, &Pen(key(by)))
}

fn proof(certificate: Certificate) -> Message {
    Message::Proof { certificate, beat: None }
}
