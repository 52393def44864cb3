//! Tokens that were right a moment ago.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::keep::{Keep, Presented, TokenRecord};
use crate::{Error, clock};

/// How long a token is believed without looking: a revoked one opens nothing on any daemon after this time.
const FRESH: Duration = Duration::from_secs(1);
/// How long it is remembered that a token was right, for the sake of those who share an address with somebody wrong.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How far behind the time of the last use may be.
const USED_EVERY: Duration = Duration::from_secs(60);
const MOST: usize = 10_000;

/// Tokens that were right a moment ago.
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

/// What is remembered of a token.
pub(super) enum Memory {
    /// It was right just now.
    Fresh(Arc<TokenRecord>),
    /// It was right once: it must be looked up.
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

    /// Asks the store; nothing if there is no such token, or if it has ended.
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
