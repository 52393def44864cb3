//! Background cleanup: idle locks, of which each fingerprint of a signal leaves one, and old entries of the audit log.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::keep::Keep;
use crate::locking::Locking;

/// The interval between cleanups.
const PAUSE: Duration = Duration::from_secs(60);
/// How long a lock must be idle, without a holder or a request, before it is pruned.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of rows in one transaction, so that other transactions do not wait long.
const AT_ONCE: u32 = 500;

/// Prunes idle locks until the daemon stops. Later tokens are above those of pruned locks.
pub(crate) async fn forget_idle(locking: Locking, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        // Before the locks are available, there are none to prune.
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

/// Deletes entries of the audit log that are older than `older`, until the daemon stops.
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
