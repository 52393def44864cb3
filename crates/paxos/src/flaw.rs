//! Known defects, to be planted by tests: whatever looks for defects must find these.

use std::any::Any;
use std::cell::RefCell;

/// A defect that a real system had, or that the proof of this one excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// A quorum is a number of messages, not of acceptors.
    CountMessages,
    /// A refusal that carries no value is passed over.
    IgnoreRefusals,
    /// A proposer that restarts begins with a ballot it has used before.
    ReuseBallot,
    /// A promise is answered before it is stored, and lost in a crash.
    AnswerBeforeStoring,
    /// One promise stands for all slots: a higher one of an earlier slot is forgotten.
    OnePromiseForAll,
    /// Two connections race on one promise: the later to write wins, whichever is higher.
    RacingPromise,
    /// A proposer that was told of an accepted value proposes its own all the same.
    IgnoreAccepted,
    /// A voter of the log takes an entry on top of another than its leader's.
    TakeWithoutMatch,
    /// A leader counts who holds an inherited entry, whoever they hold it from.
    CommitInherited,
    /// A leader that sends entries before they are on its disk counts itself all the same.
    CountUnstored,
}

impl Plant for Flaw {}

thread_local! {
    static PLANTED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// What a crate's enum of defects can do; [`planted!`](crate::planted) asks it.
pub trait Plant: Copy + PartialEq + 'static {
    /// Whether this defect is planted in this thread.
    fn is_planted(self) -> bool {
        PLANTED.with_borrow(|planted| {
            planted.as_ref().is_some_and(|planted| planted.downcast_ref() == Some(&self))
        })
    }

    /// Runs something with this defect in it, and no other.
    fn plant<T>(self, run: impl FnOnce() -> T) -> T {
        let _pulled = Pulled(PLANTED.replace(Some(Box::new(self))));
        run()
    }
}

/// Runs something with this defect in it, if there is one.
///
/// A checker has threads of its own, which know nothing of what is planted in another.
pub fn with<T>(flaw: Option<impl Plant>, run: impl FnOnce() -> T) -> T {
    match flaw {
        Some(flaw) => flaw.plant(run),
        None => run(),
    }
}

/// Puts back what was there before, also when the run panics.
struct Pulled(Option<Box<dyn Any>>);

impl Drop for Pulled {
    fn drop(&mut self) {
        PLANTED.set(self.0.take());
    }
}
