//! How long to wait, and how much at once.

/// How patient a node is, and what it carries at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// A leader unheard of for so long is taken for dead; whoever looks for another waits up to twice as long.
    pub election_us: u64,
    /// A leader is heard of so often.
    pub heartbeat_us: u64,
    /// So many entries go to one who is behind, at a time.
    pub batch: usize,
    /// So many entries are on their way to one follower, before it has said that it has them.
    pub window: u64,
    /// So many entries of a leader may be undecided.
    pub undecided: u64,
    /// Whether a leader's entries may go to others while its own disk writes them: then whoever runs the node tells it
    /// by [`Input::Stored`](super::Input::Stored) what it has been told by [`Output::Stored`](super::Output::Stored).
    pub early: bool,
}

impl Default for Options {
    fn default() -> Self {
        let [election_us, heartbeat_us] = [1_000_000, 150_000];
        Self { election_us, heartbeat_us, batch: 256, window: 1024, undecided: 4096, early: false }
    }
}
