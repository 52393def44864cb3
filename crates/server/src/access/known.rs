//! Cache of tokens that were valid recently.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::keep::{Keep, Presented, TokenRecord};
use crate::{Error, clock};

/// How long a token is accepted without a lookup. After this time every daemon refuses a revoked token.
const FRESH: Duration = Duration::from_secs(1);
/// How long the cache remembers that a token was valid. Such a token is exempt from the limit on invalid tokens of its
/// address, which other clients may share.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The resolution of a token's last use.
const USED_EVERY: Duration = Duration::from_secs(60);
const MOST: usize = 10_000;

/// Cache of tokens that were valid recently.
pub(super) struct Known {
    keep: Keep,
    by_id: Mutex<HashMap<String, Remembered>>,
}

struct Remembered {
    token: Arc<TokenRecord>,
    hash: Vec<u8>,
    looked_at: Duration,
    fresh_until: Duration,
}

/// The cached state of a token.
pub(super) enum Memory {
    /// The token was valid within [`FRESH`].
    Fresh(Arc<TokenRecord>),
    /// The token was valid within [`REMEMBERED`] and must be looked up again.
    Stale,
    Nothing,
}

impl Known {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, by_id: Mutex::default() }
    }

    pub(super) fn remembered(&self, presented: &Presented<'_>) -> Memory {
        let now = clock::now();
        match self.lock().get(presented.id).filter(|known| presented.is(&known.hash)) {
            Some(known) if now < known.fresh_until => Memory::Fresh(Arc::clone(&known.token)),
            Some(known) if now < known.looked_at + REMEMBERED => Memory::Stale,
            _ => Memory::Nothing,
        }
    }

    /// Looks up a token in the store. Returns `None` if it does not exist, was revoked or has expired.
    pub(super) async fn look_up(&self, presented: &Presented<'_>) -> Result<Option<Arc<TokenRecord>>, Error> {
        let looked_at = clock::now();
        let found = self.keep.find(presented.id).await?;
        let Some(stored) = found.filter(|stored| presented.is(&stored.hash)) else { return Ok(None) };
        if !stored.record.is_good(stored.now) {
            self.lock().remove(presented.id);
            return Ok(None);
        }
        let left = stored.record.expires_at.map_or(FRESH, |end| end.since(stored.now));
        let is_noted = stored.record.used_at.is_some_and(|used| stored.now.since(used) < USED_EVERY);
        if !is_noted && let Err(error) = self.keep.used(presented.id).await {
            tracing::debug!(%error, "not noted that a token was used");
        }
        let token = Arc::new(stored.record);
        let fresh_until = looked_at + left.min(FRESH);
        let remembered = Remembered { token: Arc::clone(&token), hash: stored.hash, looked_at, fresh_until };
        let mut by_id = self.lock();
        if by_id.len() >= MOST {
            by_id.retain(|_, known| looked_at < known.looked_at + REMEMBERED);
        }
        if by_id.len() < MOST || by_id.contains_key(presented.id) {
            by_id.insert(presented.id.to_owned(), remembered);
        }
        Ok(Some(token))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
