//! Fault injection.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

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
    DropResponse,
    /// The server neither executes the request nor responds.
    Hang,
    /// The server does not respond; it executes the request when
    /// [`release_stalled`](super::Kubernetes::release_stalled) is called.
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
pub(super) struct Faults(Mutex<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
    pending: Vec<(Verb, Fault)>,
    arrived: HashMap<Verb, usize>,
}

impl Faults {
    pub(super) fn add(&self, verb: Verb, fault: Fault) {
        self.lock().pending.push((verb, fault));
    }

    pub(super) fn left(&self) -> usize {
        self.lock().pending.len()
    }

    pub(super) fn arrived(&self, verb: Verb) -> usize {
        self.lock().arrived.get(&verb).copied().unwrap_or_default()
    }

    /// Counts a request; returns the fault that affects it, if any.
    pub(super) fn next_for(&self, verb: Verb) -> Option<Fault> {
        let mut inner = self.lock();
        *inner.arrived.entry(verb).or_default() += 1;
        let index = inner.pending.iter().position(|(meant, _)| *meant == verb)?;
        Some(inner.pending.remove(index).1)
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock()
    }
}
