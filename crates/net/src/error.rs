//! The errors of this crate: the cause, the resulting state, and the next action.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};
use serde::{Deserialize, Serialize};

use crate::PublicKey;

/// An error of a link or of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection. Nothing was sent. The link continues to connect on its own.
    #[error("{peer} has been unreachable for {since:?} ({source}); {}", next(*.next_attempt))]
    Unreachable {
        /// The peer.
        peer: PublicKey,
        /// The time since the peer became unreachable.
        since: Duration,
        /// The time until the next attempt. `None` if the policy has given up: the first use after a pause makes the
        /// next attempt.
        next_attempt: Option<Duration>,
        /// The cause of the last failure.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The server at the peer's address shows another key. Nothing was sent. Check the address, and whether the
    /// peer has a new key.
    #[error("the server at {address} has the key {shown}, not {expected}: correct the address or the key; {}", next(*.next_attempt))]
    WrongKey {
        /// The address.
        address: String,
        /// The key that the link expects.
        expected: PublicKey,
        /// The key that the server has shown, without a proof.
        shown: PublicKey,
        /// The time until the next attempt.
        next_attempt: Option<Duration>,
    },
    /// The peer refuses this side, or has disconnected it. Nothing was sent. The peer's allow list, version or roles
    /// must be changed first.
    #[error("{peer} refuses the connection: {reason}; {}", next(*.next_attempt))]
    Refused {
        /// The peer.
        peer: PublicKey,
        /// The reason that the peer gave.
        reason: CloseReason,
        /// The time until the next attempt.
        next_attempt: Option<Duration>,
    },
    /// The peer has accepted the connection with a version that this side does not speak. Nothing was sent. The older
    /// side must be upgraded first.
    #[error("{peer} speaks an incompatible version: {source}; {}", next(*.next_attempt))]
    Incompatible {
        /// The peer.
        peer: PublicKey,
        /// The versions of both sides.
        source: Arc<dyn std::error::Error + Send + Sync>,
        /// The time until the next attempt.
        next_attempt: Option<Duration>,
    },
    /// The deadline passed.
    #[error("no reply within {waited:?}: {}", whether_sent(*.is_sent))]
    Deadline {
        /// The time that the caller waited.
        waited: Duration,
        /// Whether the request may have been sent. If so, the peer may have executed it, or may still execute it.
        is_sent: bool,
    },
    /// The connection was lost before the reply arrived. The peer may have executed the request, or may still execute
    /// it.
    #[error(
        "the connection was lost before the reply arrived ({source}): the peer may have executed the request"
    )]
    Lost {
        /// The reason why the connection ended.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The message is longer than the other side accepts. Nothing was sent.
    #[error("a message of {size} bytes exceeds the peer's limit of {limit} bytes")]
    TooLarge {
        /// The size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The peer's handler returned an error.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// A value could not be encoded. Nothing was sent.
    #[error("cannot encode the value: {0}")]
    Encode(#[source] postcard::Error),
    /// The bytes do not decode to a value of the expected type: the two sides disagree about the message format.
    #[error("cannot decode the received value: {0}; use the same message types on both sides")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The link was closed on this side. Nothing was sent.
    #[error("the link is closed: create a new one")]
    Closed,
    /// The server could not listen at the address.
    #[error("cannot listen at {address}: {source}; choose an address of this machine and a free port")]
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

fn next(next_attempt: Option<Duration>) -> String {
    match next_attempt {
        Some(wait) => format!("the next attempt is in {wait:?}"),
        None => "a later call retries".to_owned(),
    }
}

fn whether_sent(is_sent: bool) -> &'static str {
    if is_sent {
        "the peer may have executed the request, or may still execute it"
    } else {
        "nothing was sent"
    }
}

impl Error {
    /// Returns whether the operation may succeed later without an operator's intervention.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Lost { .. } => true,
            Self::Handler(error) => error.is_transient,
            _ => false,
        }
    }

    /// Returns whether the other side may have executed the request, or may still execute it.
    pub const fn may_have_executed(&self) -> bool {
        matches!(
            self,
            Self::Deadline { is_sent: true, .. } | Self::Lost { .. } | Self::Handler(_) | Self::Decode(_)
        )
    }

    /// Returns the label value used in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::WrongKey { .. } => "wrong_key",
            Self::Refused { .. } => "refused",
            Self::Incompatible { .. } => "incompatible",
            Self::Deadline { .. } => "deadline",
            Self::Lost { .. } => "lost",
            Self::TooLarge { .. } => "too_large",
            Self::Handler(_) => "handler",
            Self::Closed => "closed",
            Self::Encode(_) | Self::Decode(_) | Self::Listen { .. } | Self::Options(_) => "other",
        }
    }
}

/// Only the caller knows whether a retry is safe: an idempotent request may be retried, whatever
/// [`Error::may_have_executed`] returns.
impl Classify for Error {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::Unreachable { next_attempt: Some(wait), .. } => {
                Failure::transient().with_retry_after(*wait)
            }
            Self::Deadline { .. } => Failure::new(Class::Timeout),
            error if error.is_transient() => Failure::transient(),
            _ => Failure::permanent(),
        }
    }
}

/// The answer of a handler that cannot execute a request. The peer receives it unchanged, so it must contain no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer's handler failed: {message}")]
pub struct HandlerError {
    /// Whether a later attempt may succeed.
    pub is_transient: bool,
    /// The cause and the next action, for people.
    pub message: String,
}

impl HandlerError {
    /// Creates a transient error: a later attempt may succeed.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { is_transient: true, message: message.into() }
    }

    /// Creates a permanent error: it does not pass without intervention.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { is_transient: false, message: message.into() }
    }
}

/// The reason why the other side refused or ended a connection. It is part of the wire format: add new variants at the
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The key is not on the server's allow list. The operator must add it.
    #[error("this key is not on its allow list")]
    NotAllowed,
    /// The server has reached its limit of connections.
    #[error("it has reached its limit of connections")]
    TooManyConnections,
    /// The server has reached its limit of connections with this key. Check whether several places use the key.
    #[error("it has reached its limit of connections with this key")]
    TooManyWithKey,
    /// The two sides have no protocol version in common: the older one must be upgraded.
    #[error(
        "it speaks the protocol versions {oldest} to {newest}, and this side speaks others: upgrade the older side"
    )]
    Version {
        /// The oldest version of the side that refuses.
        oldest: u16,
        /// The newest version of the side that refuses.
        newest: u16,
    },
    /// The server does not serve this role.
    #[error("it does not serve this role")]
    Role,
    /// The bytes received violate the protocol.
    #[error("it received bytes that violate the protocol")]
    Malformed,
    /// The other side is shutting down, or has nothing more to send.
    #[error("it is shutting down")]
    ShuttingDown,
    /// The other side received nothing from this side within its idle timeout.
    #[error("it received nothing within its idle timeout")]
    IdleTimeout,
    /// The application on the other side disconnected this peer.
    #[error("it disconnected this peer")]
    Disconnected,
    /// The two sides have no version of the role in common: the older one must be upgraded.
    #[error(
        "it speaks the versions {oldest} to {newest} of this role, and this side speaks others: upgrade the older side"
    )]
    RoleVersion {
        /// The oldest version of the side that refuses.
        oldest: u16,
        /// The newest version of the side that refuses.
        newest: u16,
    },
}

impl CloseReason {
    /// Returns whether the reason may pass without an operator's intervention.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::TooManyConnections
                | Self::TooManyWithKey
                | Self::ShuttingDown
                | Self::IdleTimeout
                | Self::Disconnected
        )
    }

    /// Returns the word used in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyWithKey => "too_many_with_key",
            Self::Version { .. } => "version",
            Self::Role => "role",
            Self::Malformed => "malformed",
            Self::ShuttingDown => "shutting_down",
            Self::IdleTimeout => "idle_timeout",
            Self::Disconnected => "disconnected",
            Self::RoleVersion { .. } => "role_version",
        }
    }
}
