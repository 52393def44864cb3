//! Known defects that tests inject. The checks of the simulation must find each of them.

pub use holdoff_paxos::flaw::Plant;

/// A defect of the source document's algorithm, or a possible defect of the hash, the restart or the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// A node whose wait for a result times out increments the index and continues without the diff.
    SkipOnTimeout,
    /// A restart counts the stored entries as applied but does not apply them.
    CountOnRestart,
    /// The hash of an entry does not cover its diff.
    HashWithoutDiff,
    /// A failing goal changes the state of the leader that executes it.
    FailureChanges,
    /// The receiver numbers the entries that it receives.
    LocalNumbers,
    /// A restarted voter forgets that it confirmed a term, and votes for another candidate at once.
    ForgetVouching,
    /// A leader that has transferred leadership continues to serve reads until its lease expires.
    ReadOn,
}

impl Plant for Flaw {}
