//! The errors of this crate: the cause, the resulting state, and the next action.

use std::io;
use std::time::Duration;

use holdoff_policy::{Class, Failure};

use crate::{PublicKey, Refusal};

/// An error of a link or of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection. Nothing was sent. The link continues to connect on its own.
    #[error("{peer} has been unreachable for {since:?} ({why}); {}", next(*.next_try))]
    Unreachable {
        /// The peer.
        peer: PublicKey,
        /// The time since the peer became unreachable.
        since: Duration,
        /// The time until the next attempt. `None` if the policy has given up: the first use after a pause makes the
        /// next attempt.
        next_try: Option<Duration>,
        /// The cause of the last failure.
        why: String,
    },
    /// The server at the peer's address shows another key. Nothing was sent. Check the address, and whether the
    /// peer has a new key.
    #[error("at {address} is {shown}, and not {expected}: correct the address or the key; {}", next(*.next_try))]
    WrongKey {
        /// The address.
        address: String,
        /// The key that the link expects.
        expected: PublicKey,
        /// The key that the server has shown, without a proof.
        shown: PublicKey,
        /// The time until the next attempt.
        next_try: Option<Duration>,
    },
    /// The peer refuses this side, or has disconnected it. Nothing was sent. The peer's allow list, version or roles
    /// must be changed first.
    #[error("{peer} refuses us: {reason}; {}", next(*.next_try))]
    Refused {
        /// The peer.
        peer: PublicKey,
        /// The reason that the peer gave.
        reason: Refusal,
        /// The time until the next attempt.
        next_try: Option<Duration>,
    },
    /// The deadline passed.
    #[error("no reply within {waited:?}: {}", whether_sent(*.sent))]
    Deadline {
        /// The time that the caller waited.
        waited: Duration,
        /// Whether the request may have been sent. If so, the peer may have executed it, or may still execute it.
        sent: bool,
    },
    /// The connection was lost before the reply arrived. The peer may have executed the request, or may still execute
    /// it.
    #[error("the connection was lost before the reply came ({why}): the request may have been carried out")]
    Lost {
        /// The reason why the connection ended.
        why: String,
    },
    /// The message is longer than the other side accepts. Nothing was sent.
    #[error("a message of {size} bytes is too large: {limit} are the most")]
    TooLarge {
        /// The size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The peer's handler answered with a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A value could not be encoded. Nothing was sent.
    #[error("this value cannot be sent: {0}")]
    Unwritable(String),
    /// The bytes do not decode to a value of the expected type: the two sides disagree about the message format.
    #[error("what came cannot be read: {0}")]
    Unreadable(String),
    /// The link was closed on this side. Nothing was sent.
    #[error("the link is closed")]
    Closed,
    /// The server could not listen at the address.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The options are invalid.
    #[error("{0}")]
    Options(String),
}

fn next(next_try: Option<Duration>) -> String {
    match next_try {
        Some(wait) => format!("the next try is in {wait:?}"),
        None => "a later call tries again".to_owned(),
    }
}

fn whether_sent(sent: bool) -> &'static str {
    if sent { "the request may have been carried out, or still be" } else { "nothing was sent" }
}

impl Error {
    /// Returns whether the operation may succeed later without an operator's intervention.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Lost { .. } => true,
            Self::Fault(fault) => fault.is_transient,
            _ => false,
        }
    }

    /// Returns whether the other side may have executed the request, or may still execute it.
    pub const fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Self::Deadline { sent: true, .. } | Self::Lost { .. } | Self::Fault(_) | Self::Unreadable(_)
        )
    }

    /// Converts the error to a [`Failure`], from which a policy decides when to retry. Only the caller knows whether a
    /// retry is safe: an idempotent request may be retried, whatever [`Error::may_have_happened`] returns.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Unreachable { next_try: Some(wait), .. } => Failure::transient().with_retry_after(*wait),
            Self::Deadline { .. } => Failure::new(Class::Timeout),
            error if error.is_transient() => Failure::transient(),
            _ => Failure::permanent(),
        }
    }

    /// Returns the label value used in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::WrongKey { .. } => "wrong_key",
            Self::Refused { .. } => "refused",
            Self::Deadline { .. } => "deadline",
            Self::Lost { .. } => "lost",
            Self::TooLarge { .. } => "too_large",
            Self::Fault(_) => "fault",
            Self::Closed => "closed",
            Self::Unwritable(_) | Self::Unreadable(_) | Self::Listen { .. } | Self::Options(_) => "other",
        }
    }
}

/// The answer of a handler that cannot execute a request. The peer receives it unchanged, so it must contain no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer answers: {message}")]
pub struct Fault {
    /// Whether a later attempt may succeed.
    pub is_transient: bool,
    /// The cause and the next action, for people.
    pub message: String,
}

impl Fault {
    /// Creates a transient fault: a later attempt may succeed.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { is_transient: true, message: message.into() }
    }

    /// Creates a permanent fault: it does not pass without intervention.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { is_transient: false, message: message.into() }
    }
}
