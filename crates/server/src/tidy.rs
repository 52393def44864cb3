//! Forgetting locks that nobody uses any more, for every fingerprint of a signal leaves one; and what was done long ago.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::keep::Keep;
use crate::locking::Locking;

/// How often.
const PAUSE: Duration = Duration::from_secs(60);
/// For how long nobody has held it or asked for it.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many at once, so that nobody else waits long.
const AT_ONCE: u32 = 500;

/// Forgets idle locks until the daemon stops. Their tokens stay below all that come.
pub(crate) async fn forget_idle(locking: Locking, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        // Where locks cannot be had yet, there is none to forget.
        let Ok(locks) = locking.here().await else { continue };
        let all = async {
            while locks.prune(IDLE, AT_ONCE).await? >= u64::from(AT_ONCE) {}
            Ok::<_, holdoff_lock::Error>(())
        };
        if let Some(Err(error)) = stopping.run_until_cancelled(all).await {
            tracing::warn!(%error, "idle locks are not forgotten");
        }
    }
}

/// Forgets what was done longer ago than this, until the daemon stops.
pub(crate) async fn forget_deeds(keep: Keep, older: Duration, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        let all = async {
            while keep.prune(older, AT_ONCE).await? >= u64::from(AT_ONCE) {}
            Ok::<_, crate::Error>(())
        };
        if let Some(Err(error)) = stopping.run_until_cancelled(all).await {
            tracing::warn!(%error, "the audit log is not cut");
        }
    }
}
