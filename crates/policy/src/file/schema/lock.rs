//! The `[lock]` section: locks.

use schemars::JsonSchema;

use super::DurationText;

/// The defaults of locks. An acquisition may override them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LockTable {
    /// The lease of a lock. A holder that vanishes blocks other clients for this time. From 100ms to 1d;
    /// default: 30s.
    lease: Option<DurationText>,
    /// The time to wait for a lock, over all attempts. It should exceed the lease. Default: the limits of the
    /// named policy; without a named policy, twice the lease.
    wait: Option<DurationText>,
    /// The name of the policy that spaces the attempts. Default: the preset `lock`.
    policy: Option<String>,
    /// The largest number of waiters for one lock in one process. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_waiters: Option<u32>,
    /// The name of the daemon's ledger that stores its locks, so that all members of the ledger share them.
    /// Default: none; the daemon then stores locks beside the work.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    ledger: Option<String>,
}
