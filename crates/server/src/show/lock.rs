//! A lock as it is shown in JSON.

use std::time::Duration;

use holdoff_lock::{Holder, LockRecord, Token};
use serde::Serialize;

/// A lock as it is shown in JSON. Times are seconds.
#[derive(Debug, Serialize)]
pub struct ShownLock<'a> {
    namespace: &'a str,
    key: &'a str,
    digest: &'a str,
    /// The highest ever granted.
    token: Token,
    held: bool,
    holder: Option<ShownHolder>,
    waiting: u32,
}

/// Who holds a lock.
#[derive(Debug, Serialize)]
pub struct ShownHolder {
    name: String,
    token: Token,
    held_for: f64,
    expires_in: f64,
}

/// Shows a lock. By whose nonce it is held stays untold: whoever knows it could let it go.
pub fn show_lock(record: &LockRecord) -> ShownLock<'_> {
    ShownLock {
        namespace: &record.namespace,
        key: &record.key,
        digest: &record.digest,
        token: record.token,
        held: record.holder.is_some(),
        holder: record.holder.as_ref().map(show_holder),
        waiting: record.waiting,
    }
}

pub(crate) fn show_holder(holder: &Holder) -> ShownHolder {
    ShownHolder {
        name: holder.owner.name.clone(),
        token: holder.token,
        held_for: seconds(holder.held_for),
        expires_in: seconds(holder.ends_in),
    }
}

/// To the millisecond, rounded down.
pub(crate) fn seconds(time: Duration) -> f64 {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).as_secs_f64()
}
