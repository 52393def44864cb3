//! What others want.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::{Decided, Operation, OperationId};

/// Operations of others that this device may have decided with its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Announced(BTreeMap<OperationId, Operation>);

/// As many are remembered; more are forgotten, for their authors know them.
const REMEMBERED: usize = 256;

impl Announced {
    pub(super) fn hear<M: Machine>(&mut self, operation: Operation, state: &Decided<M>) {
        let is_over = state.fate(&operation.id).is_some() || !operation.may_happen_in(state.applied().next());
        if !is_over && (self.0.len() < REMEMBERED || self.0.contains_key(&operation.id)) {
            self.0.insert(operation.id, operation);
        }
    }

    /// Forgets what is over.
    pub(super) fn tidy<M: Machine>(&mut self, state: &Decided<M>) {
        let next = state.applied().next();
        self.0.retain(|id, operation| state.fate(id).is_none() && operation.may_happen_in(next));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.0.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn forget(&mut self, id: &OperationId) {
        self.0.remove(id);
    }
}
