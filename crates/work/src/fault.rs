//! Why a step did not succeed this time.

use std::fmt;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Failure};
use holdoff_retry::Classify;

/// Why a step did not succeed this time: what a handler returns in `Err`.
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
    /// The attempt failed: the policy decides.
    Failed {
        failure: Failure,
        /// Which credential was refused, by generation, so that it is refreshed once for all.
        credential: Option<u64>,
    },
    /// It does not want to run yet. No attempt is burnt.
    Snoozed { wait: Duration },
    /// It could not be tried at all: the destination is busy or down. No attempt is burnt.
    Busy { wait: Duration },
}

impl Fault {
    /// A failure of this kind.
    pub fn new(failure: impl Into<Failure>, message: impl Into<String>) -> Self {
        let kind = FaultKind::Failed { failure: failure.into(), credential: None };
        Self { kind, message: message.into() }
    }

    /// It may work next time.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// It will fail again: the step fails at once.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    /// It contradicts what is there: somebody must decide.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Class::Conflict, message)
    }

    /// It does not want to run before so much time has passed. It is no failure, and burns no attempt.
    pub fn snooze(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: FaultKind::Snoozed { wait }, message: reason.into() }
    }

    /// An error that knows its class, by the built-in tables.
    pub fn of<E: Classify + fmt::Display>(error: &E) -> Self {
        Self::new(error.classify(&ClassMap::default()), error.to_string())
    }

    /// The destination is busy or down, and nothing was tried: come back after so long.
    pub(crate) fn busy(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: FaultKind::Busy { wait }, message: reason.into() }
    }

    /// The other side asked to be left alone for so long.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let FaultKind::Failed { failure, .. } = &mut self.kind {
            *failure = failure.with_retry_after(wait);
        }
        self
    }

    /// The credential that was refused, by generation.
    #[must_use]
    pub(crate) fn with_credential(mut self, generation: u64) -> Self {
        if let FaultKind::Failed { credential, .. } = &mut self.kind {
            *credential = Some(generation);
        }
        self
    }

    /// What was said about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The failure, if it is one.
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
