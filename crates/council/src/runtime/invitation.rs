//! What somebody needs to become a member: which council, and where it stands.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::machine::{Acceptor, Machine};
use crate::{CouncilId, Decided, Letter, PublicKey, Signature, Signer, Slot, Snapshot, Verifier};

/// A letter from a member to whoever it adds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Invitation {
    pub(super) by: PublicKey,
    body: Bytes,
    signature: Signature,
}

/// Where to begin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Start {
    /// With this state.
    Here(Snapshot),
    /// With the snapshot that a majority of these keeps, for the state is larger than a letter.
    There(Vec<Acceptor>),
}

/// The largest state that is sent in a letter.
const LETTER_BYTES: usize = 48 * 1024;

impl Invitation {
    /// Whether whoever is invited must take the state from the acceptors, and these have no snapshot of it yet.
    pub(super) fn needs_snapshot<M: Machine>(state: &Decided<M>) -> bool {
        state.compacted() == Slot(0) && state.snapshot().bytes.len() > LETTER_BYTES
    }

    /// An invitation to this council as it stands now.
    pub(super) fn letter<M: Machine>(
        state: &Decided<M>,
        to: PublicKey,
        signer: &dyn Signer,
    ) -> Result<Letter, postcard::Error> {
        let snapshot = state.snapshot();
        let start = if snapshot.bytes.len() <= LETTER_BYTES {
            Start::Here(snapshot)
        } else {
            Start::There(state.machine().acceptors().values().cloned().collect())
        };
        let body = Bytes::from(postcard::to_allocvec(&start)?);
        let by = signer.public();
        let signature = signer.sign(CONTEXT, &signed_part(state.council(), &to, &body));
        let message = postcard::to_allocvec(&Self { by, body, signature })?;
        Ok(Letter { to, message: message.into() })
    }

    /// Reads a letter to this key, if it is an invitation that who sent it has signed.
    pub(super) fn read(
        message: &[u8],
        council: CouncilId,
        to: &PublicKey,
        verifier: &dyn Verifier,
    ) -> Option<(PublicKey, Start)> {
        let invitation: Self = postcard::from_bytes(message).ok()?;
        let signed = signed_part(council, to, &invitation.body);
        let is_signed = verifier.is_signed(&invitation.by, CONTEXT, &signed, &invitation.signature);
        let start = postcard::from_bytes(&invitation.body).ok().filter(|_| is_signed)?;
        Some((invitation.by, start))
    }
}

fn signed_part(council: CouncilId, to: &PublicKey, body: &[u8]) -> Vec<u8> {
    [b"holdoff invitation", &council.0[..], to.as_bytes(), body].concat()
}
