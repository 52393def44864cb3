//! Malformed requests for an acceptor: a million for the core of one council, and three hundred thousand through its writer. The
//! acceptor must not panic, and a refused request must change nothing.
//!
//! Seeded; `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-council --test it fuzz` replays or goes
//! further.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use fastrand::Rng;
use holdoff_council::acceptor::LinkRequest;
use holdoff_council::{
    AcceptorRecord, AcceptorReply, AcceptorRequest, AccessChange, Batch, CouncilAcceptor, CouncilSnapshot,
    Digest, Endorsement, Founding, NodeId, OperationId, PublicKey, Quota, Requester, Signature,
    SignedOperation, Signer, Slot, SlotValue, Verifier,
};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::Vote;
use holdoff_testbed::Seeds;

mod writer;

const QUOTA: Quota = Quota { slots: 20, bytes: 4000, announced: 8, mail_messages: 8 };

/// Signs with a hash, which is enough to detect a mutation.
struct TestSigner;

impl Signer for TestSigner {
    fn public(&self) -> PublicKey {
        PublicKey::from_bytes([7; 32])
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let Digest(hash) = Digest::of(&[self.public().as_bytes(), context, message]);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&hash);
        Signature::from_bytes(bytes)
    }
}

impl Verifier for TestSigner {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        *by == self.public() && *signature == self.sign(context, message)
    }
}

fn requester() -> Requester {
    let key = TestSigner.public();
    Requester { key, node: NodeId::derive(key.as_bytes(), 1) }
}

/// The founding record of the council with this number, whose only member is the requester.
fn founding(number: u8) -> Founding {
    Founding {
        members: [TestSigner.public()].into(),
        state: Digest::default(),
        nonce: [number; 16],
        recovered: None,
    }
}

/// Generates a well-formed request for the council with this number.
fn good(rng: &mut Rng, number: u8) -> AcceptorRequest {
    let council = founding(number).council();
    let slot = Slot(rng.u64(1..40));
    let ballot = |slot, rng: &mut Rng| Ballot::new(slot, rng.u64(1..20), requester().node);
    let own = ballot(slot, rng);
    let operation = |rng: &mut Rng| {
        let body = Bytes::from(vec![rng.u8(..); rng.usize(0..40)]);
        SignedOperation::sign(council, OperationId([rng.u8(..); 16]), Slot(0), body, &TestSigner)
    };
    let operations: Vec<_> = (0..rng.usize(0..3)).map(|_| operation(rng)).collect();
    let (previous, withdrawn, nonce) = (Digest::default(), Vec::new(), rng.u64(..));
    let batch = Batch { previous, operations: operations.clone(), withdrawn, nonce };
    let (after, added) = (Slot(rng.u64(0..4)), vec![PublicKey::from_bytes([rng.u8(..); 32])]);
    let access = rng.bool().then_some(AccessChange { after, added, removed: Vec::new() });
    let compacts = rng.bool();
    let value = || SlotValue::sign(council, slot, &batch, access.clone(), compacts, &TestSigner).unwrap();
    let message = Bytes::from(vec![rng.u8(..); rng.usize(0..40)]);
    let state = Bytes::from(vec![7; rng.usize(0..2) * 30]);
    let snapshot = CouncilSnapshot { slot: Slot(rng.u64(0..20)), bytes: state };
    match rng.u8(0..11) {
        0 => AcceptorRequest::Prepare { slot, ballot: own, announce: operations },
        1 => {
            let next = rng.bool().then(|| ballot(slot.next(), rng));
            AcceptorRequest::Accept { slot, ballot: own, value: value(), next }
        }
        2 => AcceptorRequest::Decided { slot, vote: Vote { ballot: own, value: value() } },
        3 => AcceptorRequest::Fetch { after: Slot(rng.u64(0..40)) },
        4 => AcceptorRequest::Snapshot { offered: None },
        // A writer may lose an offered snapshot from memory, so each has its endorsements with it, and no other request
        // endorses it.
        5 => {
            let endorsement =
                Endorsement::sign(council, snapshot.slot, snapshot.digest(), Slot(0), &TestSigner);
            AcceptorRequest::Compact { snapshot, certificate: vec![endorsement] }
        }
        8 => AcceptorRequest::Endorse(Endorsement::sign(
            council,
            slot,
            Digest([8; 32]),
            Slot(rng.u64(0..4)),
            &TestSigner,
        )),
        9 => founding(number).introduction(),
        10 => AcceptorRequest::Access { changes: value().signed_access(slot).into_iter().collect() },
        6 => AcceptorRequest::Post { id: OperationId([rng.u8(..); 16]), to: requester().key, message },
        _ => AcceptorRequest::Collect,
    }
}

/// Generates the bytes of a well-formed request with up to two mutations, or bytes that were never a request.
fn mutated_request(rng: &mut Rng, number: u8) -> Vec<u8> {
    if rng.u8(0..8) == 0 {
        return (0..rng.usize(0..64)).map(|_| rng.u8(..)).collect();
    }
    let (request, council) = (good(rng, number), founding(number).council());
    let mut bytes = postcard::to_stdvec(&LinkRequest::Council { incarnation: 1, council, request }).unwrap();
    for _ in 0..rng.usize(0..3) {
        let at = rng.usize(0..=bytes.len());
        match rng.u8(0..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.splice(at..at, [255; 9]).for_each(drop),
            _ if at < bytes.len() => bytes[at] ^= 1 << rng.u8(0..8),
            _ => {}
        }
    }
    bytes
}

const COUNCIL: u8 = 1;
/// The number of consecutive cases for one acceptor. The cases share its state, so one case finds the results of the
/// others.
const NEIGHBOURS: u64 = 256;

/// An acceptor, its stored records, and counts of its answers.
struct TestAcceptor {
    acceptor: CouncilAcceptor,
    stored: Vec<AcceptorRecord>,
    read: u64,
    refused: u64,
}

impl TestAcceptor {
    fn summary(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (self.acceptor.bytes(), self.acceptor.slots(), self.acceptor.latest(), self.acceptor.floor())
    }

    fn request(&mut self, rng: &mut Rng) {
        let Ok(LinkRequest::Council { request, .. }) = holdoff_net::decode(&mutated_request(rng, COUNCIL))
        else {
            return;
        };
        self.read += 1;
        let before = self.summary();
        let held = self.acceptor.answer(&requester(), request, &TestSigner);
        let records = held.record().cloned().unwrap_or_default();
        let answers = held.release(|_| Ok::<_, ()>(())).unwrap();
        if answers.iter().any(|answer| matches!(answer.reply, AcceptorReply::Refused { .. })) {
            self.refused += 1;
            assert!(
                records.is_empty() && self.summary() == before,
                "a refused request does not change the acceptor"
            );
        }
        let snapshot = 64;
        assert!(self.acceptor.slots() <= QUOTA.slots + 1 && self.acceptor.bytes() <= QUOTA.bytes + snapshot);
        self.stored.extend(records);
    }

    /// Restarts the acceptor from the stored records and compares.
    fn check_restored(&mut self) {
        let mut again = introduced();
        self.stored.drain(..).for_each(|record| again.restore(record));
        let before = self.summary();
        self.acceptor = again;
        assert_eq!(self.summary(), before);
    }
}

/// Creates an acceptor that knows the council.
fn introduced() -> CouncilAcceptor {
    let mut acceptor = CouncilAcceptor::new(founding(COUNCIL).council(), QUOTA);
    let held = acceptor.answer(&requester(), founding(COUNCIL).introduction(), &TestSigner);
    held.release(|_| Ok::<_, ()>(())).unwrap();
    acceptor
}

#[test]
fn an_acceptor_survives_malformed_requests() {
    let seeds = Seeds::new(1_000_000, 1_000_000);
    let (start, cases) = (seeds.range().start, seeds.count());
    let mut target = TestAcceptor { acceptor: introduced(), stored: Vec::new(), read: 0, refused: 0 };
    for seed in start - start % NEIGHBOURS..start + cases {
        let survived = catch_unwind(AssertUnwindSafe(|| {
            if seed % NEIGHBOURS == 0 {
                target.check_restored();
                target.acceptor = introduced();
            }
            target.request(&mut Rng::with_seed(seed));
        }))
        .is_ok();
        assert!(survived, "{}", Seeds::replay(seed, "cargo test -p holdoff-council --test it fuzz"));
    }
    let (read, refused) = (target.read * 100 / cases, target.refused * 100 / cases);
    println!("{read} % could be decoded, {refused} % were refused by the acceptor");
    assert!(
        cases < 1000 || ((10..98).contains(&read) && refused >= 3),
        "the share of decodable or of refused requests is too small"
    );
}
