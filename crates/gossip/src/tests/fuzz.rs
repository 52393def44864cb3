//! Fuzzing with a million invalid or implausible messages: the node does not panic, and believes nothing without proof.
//!
//! Seeded; `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-gossip --lib fuzz` replays or goes further.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use holdoff_testbed::fuzz::{cases, run_seeds};

use super::{beat, certificate, proof, watch};
use crate::simulation::node::key;
use crate::{BadMessage, MAX_MESSAGE_BYTES, Message, NextEpoch, Node, Settings};

const REPLAY: &str = "cargo test -p holdoff-gossip --lib fuzz";

/// Returns a message of each kind, of an epoch that is over or has not begun.
fn corpus() -> Vec<Vec<u8>> {
    let later = certificate(9, &[3, 4], Some(4));
    let claim = later.claim().unwrap();
    let messages = [
        Message::Heartbeat(beat(claim, 3, 4)),
        Message::Ask(Some(claim)),
        Message::Ask(None),
        Message::Votes {
            next: NextEpoch { epoch: 6, previous_leader: Some(key(1)) },
            votes: later.votes.clone(),
        },
        Message::Votes { next: later.next, votes: later.votes.clone() },
        Message::Proof { beat: Some(beat(claim, 3, 4)), certificate: later },
        proof(certificate(4, &[0, 1, 2], None)),
    ];
    messages.iter().map(|message| message.encode().unwrap()).collect()
}

fn garble(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(0..8) == 0 {
        return (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
    }
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(0..4) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(0..4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.u8(0..8)),
        }
    }
    bytes
}

#[test]
fn a_million_invalid_messages_change_nothing() {
    let settings = Settings::default();
    let corpus = corpus();
    let mut proven = watch(0);
    proven.receive(0, proof(certificate(5, &[0, 1, 2], Some(1))));
    let hint = proven.hint();
    let node = RefCell::new(Node::new(proven, (1..5).map(key).collect(), &settings));
    let read = Cell::new(0_u64);
    let cases = cases(1_000_000);
    run_seeds(REPLAY, cases, |rng| {
        let Ok(message) = Message::decode(&garble(rng, &corpus)) else { return };
        read.set(read.get() + 1);
        let mut node = node.borrow_mut();
        node.receive(1, rng.u64(..), key(rng.u32(1..5)), message);
        if rng.u8(0..16) == 0 {
            node.tick(1, rng.u64(..));
        }
        assert_eq!(node.hint(), hint);
    });
    println!("{} of {cases} could be read", read.get());
    assert!(cases < 1000 || read.get() * 4 > cases, "most inputs must be decodable");
}

#[test]
fn messages_are_decoded_as_encoded_and_length_is_limited() {
    for bytes in corpus() {
        let message = Message::decode(&bytes).unwrap();
        assert_eq!(message.encode().unwrap(), bytes);
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err(), "bytes after a message are rejected");
    }
    assert!(Message::decode(&vec![0; MAX_MESSAGE_BYTES + 1]).is_err());
    let (next, vote) =
        (NextEpoch { epoch: 1, previous_leader: None }, certificate(1, &[0, 1, 2], None).votes[0]);
    let many = Message::Votes { next, votes: vec![vote; 16] }.encode().unwrap();
    assert!(matches!(Message::decode(&many), Err(BadMessage::TooMany)));
    let size = |message: &Message| message.encode().unwrap().len();
    let claim = certificate(1, &[0, 1, 2], Some(1)).claim().unwrap();
    assert_eq!(size(&Message::Heartbeat(beat(claim, 100_000, 1))), 1 + 1 + 5 + 32 + 3 + 1 + 64);
    // The longest message fits: fifteen votes, each with a nomination.
    let most: Vec<_> = (0..15).collect();
    let longest = Message::Proof {
        certificate: certificate(u64::MAX, &most, Some(1)),
        beat: Some(beat(claim, u64::MAX, 1)),
    };
    assert!(size(&longest) <= MAX_MESSAGE_BYTES, "{}", size(&longest));
}
