//! The allow list of a server.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::PublicKey;

/// The peers that a server accepts.
///
/// The server evaluates it at the handshake, and again at every frame from the peer and at every push to it. Its answer
/// may therefore change while the server runs: the server disconnects a peer that is no longer allowed. The function
/// must answer from memory, without blocking.
#[derive(Clone)]
pub struct Allow(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>);

impl Allow {
    /// Allows every peer that proves a key.
    pub fn anyone() -> Self {
        Self::when(|_| true)
    }

    /// Allows no peer.
    pub fn nobody() -> Self {
        Self::when(|_| false)
    }

    /// Allows the peers with these keys and no others.
    pub fn only(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let keys: HashSet<PublicKey> = keys.into_iter().collect();
        Self::when(move |key| keys.contains(key))
    }

    /// Allows the peers for whose key the function returns `true`.
    pub fn when(allows: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }

    /// Returns whether the peer with this key may connect, or stay connected.
    pub fn allows(&self, key: &PublicKey) -> bool {
        (self.0)(key)
    }
}

impl fmt::Debug for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allow(..)")
    }
}
