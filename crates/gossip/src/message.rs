//! What nodes say to each other.

use serde::{Deserialize, Serialize};

use crate::sampling::{MAX_EXCHANGED, Peer};
use crate::{Beat, Certificate, Claim, MAX_VOTERS, Next, Vote};

/// No message is longer.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// What a node says to another. Each may come late, twice or never.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// The leader lives.
    Beat(Beat),
    /// I know of this claim, or of none: tell me if you know better.
    Ask(Option<Claim>),
    /// An epoch has begun, with the proof, and the latest beat in it.
    Proof {
        /// What proves it.
        certificate: Certificate,
        /// The latest beat.
        beat: Option<Beat>,
    },
    /// These voters want this epoch to begin.
    Votes {
        /// The epoch, and whose time is over.
        next: Next,
        /// Their votes, and not yet those of a majority.
        votes: Vec<Vote>,
    },
    /// I am new here.
    Join(Peer),
    /// Somebody is new here: know it.
    Introduce(Peer),
    /// Here are some arcs of mine, the first of them to me; give me some of yours: [`Message::Exchanged`].
    Exchange(Vec<Peer>),
    /// Some of mine for yours.
    Exchanged(Vec<Peer>),
    /// I am there, but have exchanged enough for now: keep yours.
    Busy,
}

/// Why bytes are not a message. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    /// Longer than any.
    #[error("{0} bytes are more than any message has: at most {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    /// Not one that is known here.
    #[error("these bytes are no message: is the sender of another version?")]
    Unreadable,
    /// A list that is too long.
    #[error("a list in it is longer than any may be")]
    TooMany,
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        postcard::to_stdvec(self).map_err(|_| BadMessage::Unreadable)
    }

    /// The message with these bytes.
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

    /// Whether its lists are as short as they must be.
    pub fn is_within_limits(&self) -> bool {
        match self {
            Self::Beat(_) | Self::Ask(_) | Self::Join(_) | Self::Introduce(_) | Self::Busy => true,
            Self::Proof { certificate, .. } => certificate.votes.len() <= MAX_VOTERS,
            Self::Votes { votes, .. } => votes.len() <= MAX_VOTERS,
            Self::Exchange(peers) | Self::Exchanged(peers) => peers.len() <= MAX_EXCHANGED,
        }
    }
}
