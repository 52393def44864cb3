//! The section about locks: `[lock]`.

use schemars::JsonSchema;

use super::DurationText;

/// What locks are like unless an acquisition says otherwise.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LockTable {
    /// For how long a holder that vanished keeps others out. From 100ms to 1d; default: 30s.
    lease: Option<DurationText>,
    /// How long to wait for a lock, however many attempts that takes; it should exceed the lease. Default: what the
    /// policy says if one is named, else twice the lease.
    wait: Option<DurationText>,
    /// The policy that says when to ask again, by its name. Default: the preset `lock`.
    policy: Option<String>,
    /// How many may wait for one lock in one process. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_waiters: Option<u32>,
    /// The daemon's ledger that keeps its locks, by its name, so that all members of it share them. Default: none, and locks
    /// are kept where the work is.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    ledger: Option<String>,
}
