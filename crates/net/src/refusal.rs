//! Why a peer is not let in, or no more.

use serde::{Deserialize, Serialize};

/// Why a connection was refused, or ended, by the other side. It goes over the wire: new reasons go to the end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key is not on the list. Somebody must put it there.
    #[error("our key is not on its list")]
    NotAllowed,
    /// There are as many connections as there may be.
    #[error("it has as many connections as it bears")]
    TooManyConnections,
    /// There are as many connections with this key as there may be: is the key used in several places?
    #[error("it has as many connections with our key as it bears")]
    TooManyWithKey,
    /// The two sides have no version of the protocol in common: one must be updated.
    #[error("it speaks no version of the protocol that we do")]
    Version,
    /// The role is none that is served there.
    #[error("it does not serve our role")]
    Role,
    /// What came was not the protocol.
    #[error("it did not understand us")]
    Malformed,
    /// It is being shut down, or has nothing more to say.
    #[error("it is going away")]
    Leaving,
    /// Nothing was heard from this side for too long.
    #[error("it has not heard from us for too long")]
    Silent,
    /// Those above have cut this peer off.
    #[error("it has cut us off")]
    Cut,
}

impl Refusal {
    /// Whether it may be otherwise soon, without anybody doing something about it.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::TooManyConnections | Self::TooManyWithKey | Self::Leaving | Self::Silent | Self::Cut
        )
    }

    /// The word used in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyWithKey => "too_many_with_key",
            Self::Version => "version",
            Self::Role => "role",
            Self::Malformed => "malformed",
            Self::Leaving => "leaving",
            Self::Silent => "silent",
            Self::Cut => "cut",
        }
    }
}
