//! Fault injection: known defects that tests activate to show that the checks find them.

pub use holdoff_paxos::flaw::Plant;

/// A defect of the source document's algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// The device drops the data of a proposed value when its attempt is preempted, although the value may still be
    /// decided.
    ClearWhatWasProposed,
    /// The device takes a value for its own because the value was chosen under its ballot.
    MineByBallot,
    /// The device ignores all messages while it waits.
    SleepInTheActor,
    /// The device ends an operation that lost a slot instead of rebuilding it.
    LosingIsFailing,
    /// A restarted device does not know which ballots it has used.
    ForgetAttempts,
    /// The device reports an operation as not committed after a timeout, although it may have been committed.
    TimeoutIsFailure,
}

impl Plant for Flaw {}
