//! Known defects, to be planted by tests: whatever looks for defects must find these.

use std::cell::Cell;

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

thread_local! {
    static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
}

impl Flaw {
    /// Whether this defect is planted in this thread.
    pub fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs something with this defect in it.
    pub fn plant<T>(self, run: impl FnOnce() -> T) -> T {
        let _pulled = Pulled(PLANTED.replace(Some(self)));
        run()
    }
}

/// Puts back what was there before, also when the run panics.
struct Pulled(Option<Flaw>);

impl Drop for Pulled {
    fn drop(&mut self) {
        PLANTED.set(self.0);
    }
}
