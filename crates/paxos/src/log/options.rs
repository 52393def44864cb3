//! Timeouts and limits of a node.

/// The timeouts and limits of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// The minimum election timeout. A node that has not heard from a leader for this time considers it failed. The
    /// election timeout is drawn between one and two times this value.
    pub election_us: u64,
    /// The heartbeat interval.
    pub heartbeat_us: u64,
    /// The maximum number of entries in a message to a follower that is behind.
    pub batch: usize,
    /// The maximum number of unacknowledged entries on their way to a follower.
    pub window: u64,
    /// The maximum number of undecided entries of a leader.
    pub undecided: u64,
    /// Whether a leader sends entries while its own disk writes them. If so, the caller returns each
    /// [`Output::Stored`](super::Output::Stored) to the node as [`Input::Stored`](super::Input::Stored).
    pub early: bool,
}

impl Default for Options {
    fn default() -> Self {
        let [election_us, heartbeat_us] = [1_000_000, 150_000];
        Self { election_us, heartbeat_us, batch: 256, window: 1024, undecided: 4096, early: false }
    }
}
