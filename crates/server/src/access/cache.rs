//! Cache of tokens that were valid recently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::token_store::{PresentedToken, TokenRecord, TokenStore};
use crate::{Error, clock};

/// How long a token is accepted without a lookup. After this time every daemon refuses a revoked token.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long the cache remembers that a token was valid. Such a token does not wait for the lookups of unknown tokens
/// from its address, which other clients may share.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// The resolution of a token's last use.
const USED_AT_RESOLUTION: Duration = Duration::from_secs(60);
const MAX_CACHED: usize = 10_000;

/// Cache of tokens that were valid recently.
pub(super) struct TokenCache {
    token_store: TokenStore,
    by_id: Mutex<HashMap<String, CachedToken>>,
}

struct CachedToken {
    token: Arc<TokenRecord>,
    hash: Vec<u8>,
    scan_limit: Duration,
    fresh_until: Duration,
}

/// The cached state of a token.
pub(super) enum Cached {
    /// The token was valid within [`FRESH_FOR`].
    Fresh(Arc<TokenRecord>),
    /// The token was valid within [`REMEMBERED_FOR`] and must be looked up again.
    Stale,
    Miss,
}

impl TokenCache {
    pub(super) fn new(token_store: TokenStore) -> Self {
        Self { token_store, by_id: Mutex::default() }
    }

    pub(super) fn get(&self, presented: &PresentedToken<'_>) -> Cached {
        let now = clock::now();
        match self.by_id.lock().get(presented.id).filter(|cached| presented.matches(&cached.hash)) {
            Some(cached) if now < cached.fresh_until => Cached::Fresh(Arc::clone(&cached.token)),
            Some(cached) if now < cached.scan_limit + REMEMBERED_FOR => Cached::Stale,
            _ => Cached::Miss,
        }
    }

    /// Looks up a token in the store. Returns `None` if it does not exist, was revoked or has expired.
    pub(super) async fn fetch(
        &self,
        presented: &PresentedToken<'_>,
    ) -> Result<Option<Arc<TokenRecord>>, Error> {
        let scan_limit = clock::now();
        let found = self.token_store.find(presented.id).await?;
        let Some(stored) = found.filter(|stored| presented.matches(&stored.hash)) else { return Ok(None) };
        if !stored.record.is_valid(stored.now) {
            self.by_id.lock().remove(presented.id);
            return Ok(None);
        }
        let left = stored.record.expires_at.map_or(FRESH_FOR, |end| end.since(stored.now));
        let is_noted = stored.record.used_at.is_some_and(|used| stored.now.since(used) < USED_AT_RESOLUTION);
        if !is_noted && let Err(error) = self.token_store.touch(presented.id).await {
            tracing::debug!(%error, "failed to record the use of an API token");
        }
        let token = Arc::new(stored.record);
        let fresh_until = scan_limit + left.min(FRESH_FOR);
        let cached = CachedToken { token: Arc::clone(&token), hash: stored.hash, scan_limit, fresh_until };
        let mut by_id = self.by_id.lock();
        if by_id.len() >= MAX_CACHED {
            by_id.retain(|_, cached| scan_limit < cached.scan_limit + REMEMBERED_FOR);
        }
        if by_id.len() < MAX_CACHED || by_id.contains_key(presented.id) {
            by_id.insert(presented.id.to_owned(), cached);
        }
        Ok(Some(token))
    }
}
