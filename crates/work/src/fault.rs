//! Faults: the reasons why a run of a step did not succeed.

use std::fmt;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

/// The reason why a run of a step did not succeed. A handler returns it in `Err`.
///
/// ```
/// use holdoff_work::Fault;
/// use std::time::Duration;
///
/// let _ = Fault::transient("the mail server is busy");
/// let _ = Fault::permanent("there is no such mailbox");
/// let _ = Fault::transient("asked to come back").retry_after(Duration::from_secs(120));
/// let _ = Fault::snooze(Duration::from_secs(3600), "the shop opens in an hour");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FaultKind {
    /// The attempt failed; the policy decides what follows.
    Failed {
        failure: Failure,
        /// The generation of the credential that was rejected, so that it is refreshed once for all steps that used
        /// it.
        credential: Option<u64>,
    },
    /// The handler asked to run later. This does not use an attempt.
    Snoozed { wait: Duration },
    /// The handler did not run, because the destination is at a limit or down. This does not use an attempt.
    Busy { wait: Duration },
}

impl Fault {
    /// Creates a failure of this class.
    pub fn new(failure: impl Into<Failure>, message: impl Into<String>) -> Self {
        let kind = FaultKind::Failed { failure: failure.into(), credential: None };
        Self { kind, message: message.into() }
    }

    /// Creates a transient failure: the next attempt may succeed.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// Creates a permanent failure: the step fails without further attempts.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    /// Creates a conflict with the existing state: an operator must decide.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Class::Conflict, message)
    }

    /// Asks to run the step again after this wait. It does not count as a failure and does not use an attempt.
    pub fn snooze(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: FaultKind::Snoozed { wait }, message: reason.into() }
    }

    /// Creates a failure from an error that knows its class, by the built-in tables.
    pub fn of<E: Classify + fmt::Display>(error: &E) -> Self {
        Self::new(error.classify(&ClassMap::default()), error.to_string())
    }

    /// Reports that the destination is at a limit or down and that nothing was sent; the step returns after `wait`.
    pub(crate) fn busy(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: FaultKind::Busy { wait }, message: reason.into() }
    }

    /// Adds the wait that the other side asked for (`Retry-After`).
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let FaultKind::Failed { failure, .. } = &mut self.kind {
            *failure = failure.with_retry_after(wait);
        }
        self
    }

    /// Adds the generation of the credential that was rejected.
    #[must_use]
    pub(crate) fn with_credential(mut self, generation: u64) -> Self {
        if let FaultKind::Failed { credential, .. } = &mut self.kind {
            *credential = Some(generation);
        }
        self
    }

    /// Returns the generation of the credential that was rejected.
    pub(crate) const fn credential(&self) -> Option<u64> {
        match self.kind {
            FaultKind::Failed { credential, .. } => credential,
            FaultKind::Snoozed { .. } | FaultKind::Busy { .. } => None,
        }
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the failure, or `None` for a snooze or a busy destination.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.kind {
            FaultKind::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_class_and_perhaps_a_credential_and_other_faults_have_neither() {
        let failed = Fault::transient("why").with_credential(7);
        assert_eq!(failed.failure().map(Failure::class), Some(Class::Transient));
        assert_eq!((failed.credential(), failed.message(), &*failed.to_string()), (Some(7), "why", "why"));
        for fault in [Fault::snooze(Duration::ZERO, ""), Fault::busy(Duration::ZERO, "")] {
            let fault = fault.with_credential(7);
            assert_eq!((fault.failure(), fault.credential()), (None, None));
        }
    }
}
