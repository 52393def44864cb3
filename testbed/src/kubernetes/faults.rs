//! Fault injection.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The verb of a request.
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

/// A fault that affects one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The server closes the connection and does not execute the request.
    DropRequest,
    /// The server executes the request and closes the connection without a response.
    LoseAnswer,
    /// The server neither executes the request nor responds.
    Hang,
    /// The server does not respond; it executes the request when
    /// [`let_through`](super::Kubernetes::let_through) is called.
    Stall,
    /// The server refuses the request with this status and a `Retry-After` in seconds.
    Refuse {
        /// The status.
        code: u16,
        /// The value of `Retry-After`.
        retry_after: Option<u32>,
    },
}

/// The pending faults, and the number of requests by verb.
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

    /// Counts a request; returns the fault that affects it, if any.
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
