//! What happened lately, over all nodes: for people to look at.

use std::time::Duration;

use crate::Moment;

/// What happened lately on a store, over all its nodes.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Pulse {
    /// The store's clock when this was read.
    pub now: Moment,
    /// How much time each beat stands for.
    pub width: Duration,
    /// What happened when, the oldest first, without a gap.
    pub buckets: Vec<Beat>,
    /// Failures by class, the most frequent first.
    pub classes: Vec<(String, u64)>,
    /// Failures that were granted another try, by which attempt had failed; 10 stands for all later ones.
    pub attempts: Vec<(u32, u64)>,
    /// Operations, those that fail most first.
    pub operations: Vec<Failing>,
    /// Hosts that HTTP steps call, those that fail most first.
    pub destinations: Vec<Failing>,
}

/// What happened within a few moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Beat {
    /// When they began.
    pub at: Moment,
    /// Steps that were taken in.
    pub submitted: u64,
    /// Steps that succeeded.
    pub succeeded: u64,
    /// Runs that failed, and were granted another try.
    pub retried: u64,
    /// Steps that were given up, or are in conflict.
    pub failed: u64,
    /// Runs that ended without having failed: snoozed, shut down, turned away, rescued.
    pub other: u64,
}

/// How something that can fail does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Failing {
    /// Its namespace.
    pub namespace: String,
    /// The operation, or the host.
    pub name: String,
    /// Runs that failed, for another try or for good.
    pub failures: u64,
    /// Runs that succeeded.
    pub successes: u64,
    /// The class of the last failure.
    pub last_class: Option<String>,
}
