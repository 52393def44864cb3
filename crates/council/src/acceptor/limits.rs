//! The limits of an acceptor.

use crate::Quota;

/// The limits on the resources of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Councils with data on disk. 10 000.
    pub councils: usize,
    /// The quota of each council.
    pub council: Quota,
    /// Memory for the councils in use, in bytes. Beyond it the acceptor evicts the least recently used council. 256
    /// MiB.
    pub memory_bytes: usize,
    /// Requests that may wait for the disk. Further requests wait at the sender. 1024.
    pub queue: usize,
    /// Maximum number of requests that one commit serves. 256.
    pub batch: usize,
    /// Connections that may watch the same council. 1024.
    pub watchers: usize,
    /// Councils that one connection may watch. 10 000.
    pub watched: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            councils: 10_000,
            council: Quota::default(),
            memory_bytes: 256 * 1024 * 1024,
            queue: 1024,
            batch: 256,
            watchers: 1024,
            watched: 10_000,
        }
    }
}
