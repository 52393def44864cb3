//! Fault injection: a thread-local switch for known defects, which tests of a crate must find.
//!
//! Each crate declares an enum of its own defects in a test module, and asks [`is_injected`] where a defect takes effect.

use std::any::Any;
use std::cell::RefCell;

thread_local! {
    static INJECTED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Returns whether this defect is injected in this thread.
pub fn is_injected<F: Copy + PartialEq + 'static>(fault: F) -> bool {
    INJECTED.with_borrow(|injected| {
        injected.as_ref().is_some_and(|injected| injected.downcast_ref() == Some(&fault))
    })
}

/// Runs a closure with this defect injected and no other. The previous injection is restored afterwards, also if the
/// closure panics.
///
/// The injection is local to a thread. A model checker that runs threads of its own must call this in each of them.
pub fn inject<F: 'static, T>(fault: F, run: impl FnOnce() -> T) -> T {
    let _previous = Previous(INJECTED.replace(Some(Box::new(fault))));
    run()
}

/// Runs a closure with this defect injected, if there is one.
pub fn inject_if<F: 'static, T>(fault: Option<F>, run: impl FnOnce() -> T) -> T {
    match fault {
        Some(fault) => inject(fault, run),
        None => run(),
    }
}

/// Restores the previous injection when dropped.
struct Previous(Option<Box<dyn Any>>);

impl Drop for Previous {
    fn drop(&mut self) {
        INJECTED.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fault {
        One,
        Other,
    }

    #[test]
    fn a_fault_is_injected_within_the_closure_only() {
        assert!(!is_injected(Fault::One));
        inject(Fault::One, || {
            assert!(is_injected(Fault::One) && !is_injected(Fault::Other));
            inject(Fault::Other, || assert!(!is_injected(Fault::One)));
            assert!(is_injected(Fault::One));
        });
        assert!(!is_injected(Fault::One));
    }
}
