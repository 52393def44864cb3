//! Invitations: the data that a new member needs to start.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::machine::{AcceptorInfo, Machine};
use crate::value::CONTEXT;
use crate::{
    CouncilId, CouncilSnapshot, CouncilState, Digest, Mail, PublicKey, Signature, Signer, Slot, Verifier,
};

/// A mail message from a member to the member that it adds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Invitation {
    pub(super) by: PublicKey,
    body: Bytes,
    signature: Signature,
}

/// The state from which the new member starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Start {
    /// This snapshot.
    Snapshot(CouncilSnapshot),
    /// The snapshot with this hash at any of these acceptors, or else the one that a majority of them has stored, because the
    /// state is too large for a mail message.
    Acceptors(Vec<AcceptorInfo>, Digest),
}

/// The maximum size of a state in a mail message.
const MAIL_MESSAGE_BYTES: usize = 48 * 1024;

impl Invitation {
    /// Returns whether the new member must fetch the state from the acceptors and they have no snapshot of it yet.
    pub(super) fn needs_snapshot<M: Machine>(state: &CouncilState<M>) -> bool {
        state.compacted() == Slot(0) && state.snapshot().bytes.len() > MAIL_MESSAGE_BYTES
    }

    /// Creates an invitation to this council in its current state.
    pub(super) fn mail<M: Machine>(
        state: &CouncilState<M>,
        to: PublicKey,
        signer: &dyn Signer,
    ) -> Result<Mail, postcard::Error> {
        let snapshot = state.snapshot();
        let start = if snapshot.bytes.len() <= MAIL_MESSAGE_BYTES {
            Start::Snapshot(snapshot)
        } else {
            let acceptors = state.machine().acceptors().values().cloned().collect();
            Start::Acceptors(acceptors, state.compacted_digest())
        };
        let body = Bytes::from(postcard::to_allocvec(&start)?);
        let by = signer.public();
        let signature = signer.sign(CONTEXT, &signed_part(state.council(), &to, &body));
        let message = postcard::to_allocvec(&Self { by, body, signature })?;
        Ok(Mail { to, message: message.into() })
    }

    /// Decodes a mail message to this key, if it is an invitation that its sender has signed.
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
