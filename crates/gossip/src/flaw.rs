//! Fault injection: known defects of the source document's algorithm. The simulations must find them.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A node that forwards a heartbeat raises and signs it again, and receivers accept the signature of any voter.
    RelaysRaise,
    /// A node adopts a heartbeat without checking its signature.
    UncheckedBeats,
}

thread_local! {
    static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
}

impl Flaw {
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs a closure with this defect injected.
    pub(crate) fn plant<T>(self, run: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(self));
        let ran = run();
        PLANTED.set(None);
        ran
    }
}
