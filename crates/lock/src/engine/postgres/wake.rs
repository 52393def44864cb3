//! Notifications of released locks, on one connection that listens.

use std::sync::OnceLock;

use sqlx::PgPool;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::Nonce;
use crate::wakes::{Heard, Subscription, Wakes};

/// Listens for NOTIFY, from the first subscription on.
#[derive(Debug)]
pub(super) struct Wake {
    pool: PgPool,
    wakes: Wakes,
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(pool: PgPool) -> Self {
        Self { pool, wakes: Wakes::default(), listener: OnceLock::new() }
    }

    pub(super) fn subscribe(&self, digest: &[u8; 32]) -> Subscription {
        let subscription = self.wakes.subscribe(digest);
        self.listener.get_or_init(|| {
            let wakes = self.wakes.clone();
            holdoff_sql::postgres::listen(self.pool.clone(), "holdoff_locks", move |said| {
                match said.and_then(understand) {
                    Some((digest, heard)) => wakes.tell(&digest, heard),
                    None => wakes.tell_all(),
                }
            })
        });
        subscription
    }
}

/// Parses a payload: the digest in hexadecimal digits and, if the lock is reserved, a colon and the waiter's nonce.
fn understand(said: &str) -> Option<([u8; 32], Heard)> {
    let (digest, nonce) = match said.split_once(':') {
        Some((digest, nonce)) => (digest, Some(Nonce::new(Uuid::parse_str(nonce).ok()?))),
        None => (said, None),
    };
    let mut bytes = [0; 32];
    if digest.len() != 2 * bytes.len() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digest.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some((bytes, nonce.map_or(Heard::Maybe, Heard::Next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let nonce = Nonce::fresh();
        let digest = "0a".repeat(32);
        assert_eq!(understand(&digest), Some(([10; 32], Heard::Maybe)));
        assert_eq!(understand(&format!("{digest}:{nonce}")), Some(([10; 32], Heard::Next(nonce))));
        for nonsense in ["", "0a", &"0g".repeat(32), &format!("{digest}:x"), &"é".repeat(32)] {
            assert_eq!(understand(nonsense), None, "{nonsense}");
        }
    }
}
