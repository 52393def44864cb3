//! Known defects of the first system, to be planted by tests: whatever looks for defects must find these.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// Whoever passes a heartbeat on makes a fresh one of it, and its word is taken for the leader's.
    RelaysRaise,
    /// A heartbeat is taken over, whoever has signed it.
    UncheckedBeats,
}

thread_local! {
    static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
}

impl Flaw {
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs something with this defect in it.
    pub(crate) fn plant<T>(self, run: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(self));
        let ran = run();
        PLANTED.set(None);
        ran
    }
}
