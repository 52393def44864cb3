//! What can go wrong, what is true then, and what to do about it.

use std::io;
use std::time::Duration;

use holdoff_policy::{Class, Failure};

use crate::{PublicKey, Refusal};

/// What went wrong with a link, or with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection. Nothing was sent; the link goes on trying by itself.
    #[error("{peer} has been unreachable for {since:?} ({why}); {}", next(*.next_try))]
    Unreachable {
        /// Who.
        peer: PublicKey,
        /// For how long.
        since: Duration,
        /// In how long the link tries again; none if its policy has given up and the next call after a while tries.
        next_try: Option<Duration>,
        /// What went wrong the last time.
        why: String,
    },
    /// Somebody else answers at the peer's address. Nothing was sent. Is the address right, or has the peer a new key?
    #[error("at {address} is {shown}, and not {expected}: correct the address or the key; {}", next(*.next_try))]
    WrongKey {
        /// Where.
        address: String,
        /// Whom the link is to.
        expected: PublicKey,
        /// Who is there.
        shown: PublicKey,
        /// In how long the link tries again.
        next_try: Option<Duration>,
    },
    /// The peer does not let us in, or no more. Nothing was sent. The peer's list, version or role must be changed first.
    #[error("{peer} refuses us: {reason}; {}", next(*.next_try))]
    Refused {
        /// Who.
        peer: PublicKey,
        /// Why.
        reason: Refusal,
        /// In how long the link tries again.
        next_try: Option<Duration>,
    },
    /// The time was up.
    #[error("no reply within {waited:?}: {}", whether_sent(*.sent))]
    Deadline {
        /// How long that was.
        waited: Duration,
        /// Whether the request may have been sent: then it may have been carried out, or still be.
        sent: bool,
    },
    /// The connection was lost before the reply came. The request may have been carried out, or still be.
    #[error("the connection was lost before the reply came ({why}): the request may have been carried out")]
    Lost {
        /// What happened to the connection.
        why: String,
    },
    /// The message is longer than the other side reads. Nothing was sent.
    #[error("a message of {size} bytes is too large: {limit} are the most")]
    TooLarge {
        /// How long it is.
        size: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The peer has answered that it cannot.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A value could not be written as bytes. Nothing was sent.
    #[error("this value cannot be sent: {0}")]
    Unwritable(String),
    /// The bytes are no such value: the two sides disagree about what they talk about.
    #[error("what came cannot be read: {0}")]
    Unreadable(String),
    /// The link was closed on this side. Nothing was sent.
    #[error("the link is closed")]
    Closed,
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The options cannot be used.
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
    /// Whether it may work next time, without anybody doing something about it.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Lost { .. } => true,
            Self::Fault(fault) => fault.is_transient,
            _ => false,
        }
    }

    /// Whether the other side may have carried out, or may still carry out, what it was asked.
    pub const fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Self::Deadline { sent: true, .. } | Self::Lost { .. } | Self::Fault(_) | Self::Unreadable(_)
        )
    }

    /// The same for a policy, which says when to ask again. Whether that is safe, the caller knows: a request that may
    /// be made twice is one to retry, whatever [`Error::may_have_happened`] says.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Unreachable { next_try: Some(wait), .. } => Failure::transient().with_retry_after(*wait),
            Self::Deadline { .. } => Failure::new(Class::Timeout),
            error if error.is_transient() => Failure::transient(),
            _ => Failure::permanent(),
        }
    }

    /// The word used in metrics.
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

/// What a handler answers when it cannot do what it was asked. It goes to the peer as it is: nothing secret in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer answers: {message}")]
pub struct Fault {
    /// Whether it may work next time.
    pub is_transient: bool,
    /// What went wrong and what to do, for people.
    pub message: String,
}

impl Fault {
    /// It may work next time.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { is_transient: true, message: message.into() }
    }

    /// It will not pass by itself.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { is_transient: false, message: message.into() }
    }
}
