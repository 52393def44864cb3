//! Malformed requests for an acceptor: a million for its seat, and three hundred thousand through its writer. The
//! acceptor must not panic, and a refused request must change nothing.
//!
//! Seeded; `HOLDOFF_FUZZ_SEED=… HOLDOFF_FUZZ_CASES=… cargo test -p holdoff-council --test it fuzz` replays or goes
//! further.

mod seat;
#[cfg(feature = "flaws")]
mod writer;

use bytes::Bytes;
use fastrand::Rng;
use holdoff_council::acceptor::Request;
use holdoff_council::{
    Ask, Asker, Batch, CouncilId, Digest, Operation, OperationId, PublicKey, Quota, Signature, Signer, Slot,
    Snapshot, Value, Verifier, node_id,
};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::Vote;

const QUOTA: Quota = Quota { slots: 20, bytes: 4000, announced: 8, letters: 8 };

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Signs with a hash, which is enough to detect a mutation.
struct Cheap;

impl Signer for Cheap {
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

impl Verifier for Cheap {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        *by == self.public() && *signature == self.sign(context, message)
    }
}

fn asker() -> Asker {
    let key = Cheap.public();
    Asker { key, node: node_id(&key, 1) }
}

/// Generates a well-formed request.
fn good(rng: &mut Rng, council: CouncilId) -> Ask {
    let slot = Slot(rng.u64(1..40));
    let ballot = |slot, rng: &mut Rng| Ballot::new(slot, rng.u64(1..20), asker().node);
    let own = ballot(slot, rng);
    let operation = |rng: &mut Rng| {
        let body = Bytes::from(vec![rng.u8(..); rng.usize(0..40)]);
        Operation::sign(council, OperationId([rng.u8(..); 16]), Slot(0), body, &Cheap)
    };
    let operations: Vec<_> = (0..rng.usize(0..3)).map(|_| operation(rng)).collect();
    let (previous, withdrawn, nonce) = (Digest::default(), Vec::new(), rng.u64(..));
    let batch = Batch { previous, operations: operations.clone(), withdrawn, nonce };
    let value = || Value::sign(council, slot, &batch, &Cheap).unwrap();
    let message = Bytes::from(vec![rng.u8(..); rng.usize(0..40)]);
    match rng.u8(0..8) {
        0 => Ask::Prepare { slot, ballot: own, announce: operations },
        1 => {
            let next = rng.bool().then(|| ballot(slot.next(), rng));
            Ask::Accept { slot, ballot: own, value: value(), next }
        }
        2 => Ask::Decided { slot, vote: Vote { ballot: own, value: value() } },
        3 => Ask::Fetch { after: Slot(rng.u64(0..40)) },
        4 => Ask::Snapshot,
        5 => Ask::Compact { snapshot: Snapshot { slot: Slot(rng.u64(0..20)), bytes: message } },
        6 => Ask::Post { id: OperationId([rng.u8(..); 16]), to: asker().key, message },
        _ => Ask::Collect,
    }
}

/// Generates the bytes of a well-formed request with up to two mutations, or bytes that were never a request.
fn question(rng: &mut Rng, council: CouncilId) -> Vec<u8> {
    if rng.u8(0..8) == 0 {
        return (0..rng.usize(0..64)).map(|_| rng.u8(..)).collect();
    }
    let ask = good(rng, council);
    let mut bytes = postcard::to_stdvec(&Request::Ask { life: 1, council, ask }).unwrap();
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
