//! What goes wrong on demand.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "they are the verbs of Kubernetes")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection is closed, and nothing was done.
    DropRequest,
    /// It is done, and the connection is closed without an answer.
    LoseAnswer,
    /// Nothing is done, and no answer comes.
    Hang,
    /// No answer comes; it is done when [`let_through`](super::Kubernetes::let_through) is called.
    Stall,
    /// It is refused with this status, and with a `Retry-After` in seconds.
    Refuse {
        /// The status.
        code: u16,
        /// When to come back.
        retry_after: Option<u32>,
    },
}

/// The faults to come, and the requests that were.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    to_come: Vec<(Verb, Fault)>,
    arrived: HashMap<Verb, usize>,
}

impl Faults {
    pub(super) fn add(&self, verb: Verb, fault: Fault) {
        self.lock().to_come.push((verb, fault));
    }

    pub(super) fn left(&self) -> usize {
        self.lock().to_come.len()
    }

    pub(super) fn arrived(&self, verb: Verb) -> usize {
        self.lock().arrived.get(&verb).copied().unwrap_or_default()
    }

    /// Counts a request; answers what is to happen to it.
    pub(super) fn meet(&self, verb: Verb) -> Option<Fault> {
        let mut inner = self.lock();
        *inner.arrived.entry(verb).or_default() += 1;
        let place = inner.to_come.iter().position(|(meant, _)| *meant == verb)?;
        Some(inner.to_come.remove(place).1)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
