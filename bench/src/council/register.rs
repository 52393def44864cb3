//! The machines of the councils under load: a register, and the members.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdoff_council::machine::{
    AcceptorInfo, CouncilChange, Effect, InvalidOperation, Machine, Members, Position, Revalidation,
};
use holdoff_council::{NodeId, PublicKey, Slot};
use serde::{Deserialize, Serialize};

/// A machine that a writer can create and change without end.
pub(super) trait Load: Machine {
    /// Creates the machine with one member.
    fn create(member: PublicKey, acceptors: &[AcceptorInfo]) -> Result<Self, InvalidOperation>;

    /// Returns a change that differs from the previous one.
    fn change(turn: u64, guest: PublicKey) -> Self::Change;
}

impl Load for Members {
    fn create(member: PublicKey, acceptors: &[AcceptorInfo]) -> Result<Self, InvalidOperation> {
        Self::create(member, "writer", acceptors.iter().cloned())
    }

    fn change(turn: u64, guest: PublicKey) -> CouncilChange {
        match turn % 2 {
            0 => CouncilChange::Add { key: guest, name: "guest".to_owned() },
            _ => CouncilChange::Remove { key: guest },
        }
    }
}

/// A number. Its operations leave the members as they are.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Register {
    member: PublicKey,
    acceptors: BTreeMap<NodeId, AcceptorInfo>,
    value: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum RegisterChange {
    Set(u64),
    Compact { since: Slot },
}

impl Load for Register {
    fn create(member: PublicKey, acceptors: &[AcceptorInfo]) -> Result<Self, InvalidOperation> {
        let acceptors = acceptors.iter().map(|acceptor| (acceptor.id(), acceptor.clone())).collect();
        Ok(Self { member, acceptors, value: 0 })
    }

    fn change(turn: u64, _: PublicKey) -> RegisterChange {
        RegisterChange::Set(turn)
    }
}

impl Machine for Register {
    type Change = RegisterChange;

    fn build(&self, change: &RegisterChange, _: &Position) -> Result<Bytes, InvalidOperation> {
        let body = postcard::to_allocvec(change).map_err(|error| InvalidOperation(error.to_string()))?;
        Ok(body.into())
    }

    fn revalidate(&self, change: &RegisterChange, position: &Position) -> Revalidation {
        match change {
            RegisterChange::Compact { since } if position.compacted > *since => Revalidation::Satisfied,
            _ => Revalidation::Valid,
        }
    }

    fn is_shareable(&self, _: &RegisterChange) -> bool {
        true
    }

    fn apply(&mut self, _: &PublicKey, body: &[u8], position: &Position) -> Result<Effect, InvalidOperation> {
        match postcard::from_bytes(body).map_err(|error| InvalidOperation(error.to_string()))? {
            RegisterChange::Set(value) => self.value = value,
            RegisterChange::Compact { since } if position.compacted > since => {}
            RegisterChange::Compact { .. } => return Ok(Effect::Compact),
        }
        Ok(Effect::Nothing)
    }

    fn member_keys(&self) -> BTreeSet<PublicKey> {
        BTreeSet::from([self.member])
    }

    fn acceptors(&self) -> &BTreeMap<NodeId, AcceptorInfo> {
        &self.acceptors
    }

    fn compaction(&self, since: Slot) -> Option<RegisterChange> {
        Some(RegisterChange::Compact { since })
    }

    fn snapshot(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
