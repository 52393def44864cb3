//! The reasons for which a server refuses or disconnects a peer.

use serde::{Deserialize, Serialize};

/// The reason why the other side refused or ended a connection. It is part of the wire format: add new variants at the
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key is not on the server's allow list. The operator must add it.
    #[error("our key is not on its list")]
    NotAllowed,
    /// The server has reached its limit of connections.
    #[error("it has as many connections as it bears")]
    TooManyConnections,
    /// The server has reached its limit of connections with this key. Check whether several places use the key.
    #[error("it has as many connections with our key as it bears")]
    TooManyWithKey,
    /// The two sides have no protocol version in common: one of them must be updated.
    #[error("it speaks no version of the protocol that we do")]
    Version,
    /// The server does not serve this role.
    #[error("it does not serve our role")]
    Role,
    /// The bytes received violate the protocol.
    #[error("it did not understand us")]
    Malformed,
    /// The other side is shutting down, or has nothing more to send.
    #[error("it is going away")]
    Leaving,
    /// The other side received nothing from this side within its idle timeout.
    #[error("it has not heard from us for too long")]
    Silent,
    /// The application on the other side disconnected this peer.
    #[error("it has cut us off")]
    Cut,
}

impl Refusal {
    /// Returns whether the reason may pass without an operator's intervention.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::TooManyConnections | Self::TooManyWithKey | Self::Leaving | Self::Silent | Self::Cut
        )
    }

    /// Returns the word used in logs and metrics.
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
