//! Known defects, to be planted by tests: whatever looks for defects must find these.

pub use holdoff_paxos::flaw::Plant;

/// A defect that the first system had, or that a hash or a restart could bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// Whoever waits too long for a result counts the index up, and goes on without the diff.
    SkipOnTimeout,
    /// A restart counts the stored entries as applied, and does not apply them.
    CountOnRestart,
    /// The hash of an entry does not cover what it changes.
    HashWithoutDiff,
    /// A goal that fails leaves something behind where it was run.
    FailureChanges,
    /// What arrives is numbered by whoever receives it.
    LocalNumbers,
    /// Who restarts has forgotten whom it vouched for, and votes for another at once.
    ForgetVouching,
    /// Who has handed over reads on until its lease has run out.
    ReadOn,
}

impl Plant for Flaw {}
