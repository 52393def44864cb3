//! The JSON representation of a lock.

use std::time::Duration;

use holdoff_lock::{Holder, LockRecord, Token};
use serde::Serialize;
use utoipa::ToSchema;

/// A lock as it is shown in JSON. Times are seconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lock)]
pub struct ShownLock<'a> {
    namespace: &'a str,
    /// Its key, as far as people can read it.
    key: &'a str,
    /// The SHA-256 it is known by.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    digest: &'a str,
    /// The highest ever granted.
    #[schema(value_type = u64)]
    token: Token,
    held: bool,
    holder: Option<ShownHolder>,
    /// About how many wait.
    waiting: u32,
}

/// Who holds a lock. Times are seconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Holder)]
pub struct ShownHolder {
    name: String,
    #[schema(value_type = u64)]
    token: Token,
    #[schema(minimum = 0)]
    held_for: f64,
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// Returns the representation of a lock. It omits the holder's nonce, with which any caller could release the lock.
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

/// Returns seconds, rounded down to the millisecond.
pub(crate) fn seconds(time: Duration) -> f64 {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).as_secs_f64()
}
