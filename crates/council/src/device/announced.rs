//! The announced operations of other members.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::{Decided, Operation, OperationId};

/// Operations of other members that this device may propose together with its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Announced(BTreeMap<OperationId, Operation>);

/// The maximum number of announced operations. The device ignores further ones, because their authors still have
/// them.
const REMEMBERED: usize = 256;

impl Announced {
    pub(super) fn hear<M: Machine>(&mut self, operation: Operation, state: &Decided<M>) {
        let is_over = state.fate(&operation.id).is_some() || !operation.may_happen_in(state.applied().next());
        if !is_over && (self.0.len() < REMEMBERED || self.0.contains_key(&operation.id)) {
            self.0.insert(operation.id, operation);
        }
    }

    /// Removes the operations that have ended or expired.
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
