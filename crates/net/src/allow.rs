//! Who may come in.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::PublicKey;

/// Whom a server takes in.
///
/// It is asked at the handshake and again at everything the peer sends or is sent, so it may change its mind while
/// the server runs: whoever is no longer allowed is cut off. So it must answer from memory, at once.
#[derive(Clone)]
pub struct Allow(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>);

impl Allow {
    /// Everybody who proves some key.
    pub fn anyone() -> Self {
        Self::when(|_| true)
    }

    /// Nobody at all.
    pub fn nobody() -> Self {
        Self::when(|_| false)
    }

    /// These, and nobody else.
    pub fn only(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let keys: HashSet<PublicKey> = keys.into_iter().collect();
        Self::when(move |key| keys.contains(key))
    }

    /// Those of whom it says so.
    pub fn when(allows: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }

    /// Whether this one may come in, or stay.
    pub fn allows(&self, key: &PublicKey) -> bool {
        (self.0)(key)
    }
}

impl fmt::Debug for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allow(..)")
    }
}
