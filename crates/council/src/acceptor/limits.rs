//! How much an acceptor takes on.

use crate::Quota;

/// What an acceptor may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Councils that have something on disk. 10 000.
    pub councils: usize,
    /// What each of them may have.
    pub council: Quota,
    /// Memory for the councils in use, in bytes; who was not asked for longest leaves it. 256 MiB.
    pub memory_bytes: usize,
    /// Questions that may wait for the disk. Further ones wait with whoever asks. 1024.
    pub queue: usize,
    /// Questions that are answered with one commit, at most. 256.
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
