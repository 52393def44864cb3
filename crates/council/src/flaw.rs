//! Known defects, to be planted by tests: whatever looks for defects must find these.

pub use holdoff_paxos::flaw::Plant;

/// A defect that the first system had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// What belongs to a proposed value is thrown away when the attempt is preempted, although the value
    /// may still be decided.
    ClearWhatWasProposed,
    /// A value is taken for one's own because it was chosen under one's own ballot.
    MineByBallot,
    /// While it waits it hears nothing.
    SleepInTheActor,
    /// A lost slot ends the operation instead of building it again.
    LosingIsFailing,
    /// A restarted device does not know which ballots it has used.
    ForgetAttempts,
    /// A timed out operation is reported as not committed, although it may have been.
    TimeoutIsFailure,
}

impl Plant for Flaw {}
