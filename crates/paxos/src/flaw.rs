//! Fault injection: known defects that tests inject. The model checker, the simulations and the tests must find them.

use std::any::Any;
use std::cell::RefCell;

/// A defect that a real system had, or that this crate's correctness proof excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// A quorum is a number of messages instead of a set of acceptors.
    CountMessages,
    /// The proposer ignores a refusal that carries no value.
    IgnoreRefusals,
    /// A proposer that restarts begins with a ballot that it has used before.
    ReuseBallot,
    /// The acceptor sends a promise before it is stored, and loses it in a crash.
    AnswerBeforeStoring,
    /// The acceptor keeps a single promise for all slots: a promise for another slot replaces a higher promise for this
    /// slot.
    OnePromiseForAll,
    /// Two connections race on one promise: the last write wins, even if its ballot is lower.
    RacingPromise,
    /// A proposer that has learned of an accepted value proposes its own value regardless.
    IgnoreAccepted,
    /// A follower appends an entry without the log-matching check on the entry before it.
    TakeWithoutMatch,
    /// A leader decides an inherited entry by counting the replicas that hold it, although these replicas have not
    /// accepted the whole inherited log in the leader's term (compare figure 8 of the Raft paper).
    CommitInherited,
    /// A leader that sends entries before they are on its own disk counts itself as a replica that has stored them.
    CountUnstored,
}

impl Plant for Flaw {}

thread_local! {
    static PLANTED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Fault injection for a crate's enum of defects. The macro [`planted!`](crate::planted) queries it.
pub trait Plant: Copy + PartialEq + 'static {
    /// Returns whether this defect is injected in this thread.
    fn is_planted(self) -> bool {
        PLANTED.with_borrow(|planted| {
            planted.as_ref().is_some_and(|planted| planted.downcast_ref() == Some(&self))
        })
    }

    /// Runs a closure with this defect injected, and no other.
    fn plant<T>(self, run: impl FnOnce() -> T) -> T {
        let _pulled = Pulled(PLANTED.replace(Some(Box::new(self))));
        run()
    }
}

/// Runs a closure with this defect injected, if there is one.
///
/// The injection is local to a thread. A model checker that runs threads of its own must therefore call this function
/// in each of them.
pub fn with<T>(flaw: Option<impl Plant>, run: impl FnOnce() -> T) -> T {
    match flaw {
        Some(flaw) => flaw.plant(run),
        None => run(),
    }
}

/// Restores the previous injection when dropped, also if the closure panics.
struct Pulled(Option<Box<dyn Any>>);

impl Drop for Pulled {
    fn drop(&mut self) {
        PLANTED.set(self.0.take());
    }
}
