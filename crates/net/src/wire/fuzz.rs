//! Fuzz tests of the frame decoder with a million malformed streams. However the stream is split, the decoder does not
//! panic and holds no bytes that were not sent.
//!
//! Seeded; `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-net --lib fuzz` replays a run or extends it.

use std::cell::Cell;

use bytes::Bytes;
use fastrand::Rng;
use holdoff_testbed::fuzz;

use super::{AnnouncedLimits, Decoder, Frame, LENGTH_BYTES, Malformed, Payload};
use crate::CloseReason;
use crate::role::RoleOffer;

fn cases() -> u64 {
    fuzz::cases(1_000_000)
}

fn run_seeds(name: &str, target: impl Fn(&mut Rng)) {
    fuzz::run_seeds(&format!("cargo test -p holdoff-net --lib {name}"), cases(), target);
}

fn number(rng: &mut Rng) -> u64 {
    rng.u64(..) >> rng.u32(0..64)
}

/// Draws a valid frame.
fn frame<'a>(rng: &mut Rng, bytes: &'a [u8]) -> Frame<'a> {
    const REASONS: [CloseReason; 5] = [
        CloseReason::NotAllowed,
        CloseReason::Version { oldest: 1, newest: 300 },
        CloseReason::ShuttingDown,
        CloseReason::Disconnected,
        CloseReason::RoleVersion { oldest: 0, newest: u16::MAX },
    ];
    let payload = Payload(&bytes[..rng.usize(0..=bytes.len())]);
    let text = ["", "device", "ä role", "\u{0}"][rng.usize(0..4)];
    let small = u32::try_from(number(rng) >> 32).unwrap();
    let terms = AnnouncedLimits { max_frame: small, idle_ms: small };
    match rng.u8(0..9) {
        0 => {
            let role = RoleOffer { name: text, oldest: rng.u16(..), newest: rng.u16(..) };
            Frame::Hello { oldest: rng.u16(..), newest: rng.u16(..), role, terms }
        }
        1 => Frame::Welcome { version: rng.u16(..), role_version: rng.u16(..), terms },
        2 => Frame::Close { reason: REASONS[rng.usize(0..REASONS.len())] },
        3 => Frame::Call { id: number(rng), payload },
        4 => Frame::Reply { id: number(rng), payload },
        5 => Frame::Error { id: number(rng), is_transient: rng.bool(), message: text },
        6 => Frame::Message { payload },
        7 => Frame::Push { number: number(rng), payload },
        _ => Frame::KeepAlive,
    }
}

/// Cuts, inserts, removes, repeats, flips and overwrites bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(0..=bytes.len());
        let end = (at + rng.usize(0..12)).min(bytes.len());
        match rng.u8(0..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.extend_from_within(at..end),
            4 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << (*byte & 7)),
            _ => bytes[at..end].fill([0, 0x7f, 0x80, 0xff][rng.usize(0..4)]),
        }
    }
}

/// Decodes the stream in random pieces, up to the first violation.
fn decode(rng: &mut Rng, stream: &[u8], limit: usize) -> (Vec<Bytes>, Option<Malformed>, usize) {
    let (mut decoder, mut bodies, mut rest) = (Decoder::new(limit), Vec::new(), stream);
    loop {
        loop {
            match decoder.take() {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(malformed) => return (bodies, Some(malformed), decoder.waiting()),
            }
        }
        if rest.is_empty() {
            return (bodies, None, decoder.waiting());
        }
        let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
        decoder.put(piece);
        assert!(decoder.waiting() <= stream.len());
        rest = after;
    }
}

#[test]
fn fuzz_streams_of_frames() {
    const LIMIT: usize = 200;
    let bytes: Vec<u8> = (0..=255).collect();
    let (whole, broken) = (Cell::new(0_u64), Cell::new(0_u64));
    run_seeds("fuzz_streams_of_frames", |rng| {
        let frames: Vec<Frame<'_>> = (0..rng.usize(1..5)).map(|_| frame(rng, &bytes[..150])).collect();
        let mut stream = Vec::with_capacity(1024);
        for frame in &frames {
            stream.extend_from_slice(&frame.to_bytes());
        }
        // An unmodified stream decodes to the frames that were encoded, however it is split.
        if rng.u8(0..4) == 0 {
            let (bodies, malformed, left) = decode(rng, &stream, LIMIT);
            assert_eq!((malformed, left), (None, 0));
            assert!(bodies.iter().map(|body| Frame::read(body)).eq(frames.iter().cloned().map(Ok)));
        }
        mutate(rng, &mut stream);
        let (bodies, malformed, left) = decode(rng, &stream, LIMIT);
        let taken: usize = bodies.iter().map(|body| LENGTH_BYTES + body.len()).sum();
        assert!(bodies.iter().all(|body| body.len() <= LIMIT));
        match malformed {
            Some(Malformed::TooLarge { size, limit }) => assert!(size > limit && limit == LIMIT),
            Some(other) => panic!("the decoder returned {other:?}"),
            None => assert_eq!(taken + left, stream.len(), "the decoder drops no bytes"),
        }
        for body in &bodies {
            match Frame::read(body) {
                Ok(frame) => {
                    whole.set(whole.get() + 1);
                    assert_eq!(Frame::read(&frame.to_bytes()[LENGTH_BYTES..]), Ok(frame));
                }
                Err(malformed) => {
                    broken.set(broken.get() + 1);
                    assert_eq!(malformed, Malformed::Invalid);
                }
            }
        }
    });
    // Both outcomes must be common, or the mutations test little.
    let percent = broken.get() * 100 / (whole.get() + broken.get()).max(1);
    assert!((2..98).contains(&percent) || cases() < 1000, "{percent} % of the frames were broken");
}

#[test]
fn fuzz_noise() {
    run_seeds("fuzz_noise", |rng| {
        let mut noise = [0; 64];
        rng.fill(&mut noise);
        let noise = &mut noise[..rng.usize(0..64)];
        drop(Frame::read(noise));
        // Most random first bytes are not the tag of a frame, and most random lengths are too long.
        noise.iter_mut().take(1).for_each(|first| *first %= 9);
        drop(Frame::read(noise));
        noise.iter_mut().take(2).for_each(|first| *first = 0);
        drop(decode(rng, noise, 1 << 20));
    });
}
