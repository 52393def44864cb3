//! The messages between nodes.

use serde::{Deserialize, Serialize};

use crate::{EpochCertificate, EpochVote, Heartbeat, LeaderClaim, MAX_VOTERS, NextEpoch};

/// The maximum length of an encoded message.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// A message between nodes. A message may arrive late, twice or never.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// A heartbeat: the leader is alive.
    Heartbeat(Heartbeat),
    /// The sender's highest claim, or none. A receiver that knows a higher claim answers with its proof.
    Ask(Option<LeaderClaim>),
    /// The proof of an epoch, with the latest heartbeat in it.
    Proof {
        /// The certificate that proves the epoch.
        certificate: EpochCertificate,
        /// The latest heartbeat.
        beat: Option<Heartbeat>,
    },
    /// Votes for the beginning of an epoch.
    Votes {
        /// The epoch, and the leader whose epoch ends.
        next: NextEpoch,
        /// The votes collected so far: fewer than a majority.
        votes: Vec<EpochVote>,
    },
}

/// The reason why bytes are not a valid message. The node's state has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    /// The bytes exceed the maximum length.
    #[error("the message has {0} bytes, and at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLong(usize),
    /// The bytes are not a known message.
    #[error("the message cannot be decoded: check the version of the sender")]
    Unreadable,
    /// A list in the message exceeds its limit.
    #[error("a list in the message exceeds its limit")]
    TooMany,
}

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        postcard::to_stdvec(self).map_err(|_| BadMessage::Unreadable)
    }

    /// Decodes a message, and checks its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(BadMessage::TooLong(bytes.len()));
        }
        let (message, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| BadMessage::Unreadable)?;
        if !rest.is_empty() {
            return Err(BadMessage::Unreadable);
        }
        if message.is_within_limits() { Ok(message) } else { Err(BadMessage::TooMany) }
    }

    /// Returns whether all lists in the message are within their limits.
    pub fn is_within_limits(&self) -> bool {
        match self {
            Self::Heartbeat(_) | Self::Ask(_) => true,
            Self::Proof { certificate, .. } => certificate.votes.len() <= MAX_VOTERS,
            Self::Votes { votes, .. } => votes.len() <= MAX_VOTERS,
        }
    }
}
