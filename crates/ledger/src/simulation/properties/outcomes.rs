//! Truthful outcomes: an acknowledged transaction is in the history, and a transaction that a node has reported as absent, denied
//! or expired is not.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::log::EntryPayload;
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::{AtMostOnce, Checked, Commit, Durability, History, Violation};
use crate::machine::Values;
use crate::{Outcome, TxId, TxKey};

#[derive(Default)]
pub(crate) struct Outcomes {
    /// The latest birth with which each transaction was submitted, at all nodes and at each node.
    births: BTreeMap<TxId, Slot>,
    births_at: BTreeMap<(NodeId, TxId), Slot>,
    /// The transactions that ended as `Unknown`, those that must not be in the history, with the node, the birth and the outcome
    /// that exclude them, and the last index of those that have expired.
    unknown: BTreeSet<TxId>,
    never: BTreeMap<TxId, (NodeId, Slot, Outcome<Values>)>,
    expired: BTreeMap<TxId, Slot>,
}

impl Outcomes {
    pub(crate) fn submitted(&mut self, node: NodeId, tx: TxKey) {
        let latest = self.births.entry(tx.id).or_default();
        *latest = tx.birth.max(*latest);
        let here = self.births_at.entry((node, tx.id)).or_default();
        *here = tx.birth.max(*here);
    }

    /// Returns the latest birth with which a transaction was submitted at a node.
    pub(crate) fn birth(&self, node: NodeId, tx_id: TxId) -> Slot {
        self.births_at.get(&(node, tx_id)).copied().unwrap_or_default()
    }

    /// Checks the outcome that a caller receives. Some outcomes can be checked at the end of the run only.
    pub(crate) fn ended(
        &mut self,
        node: NodeId,
        tx_id: TxId,
        outcome: &Outcome<Values>,
        committed: &AtMostOnce,
    ) -> Checked {
        let birth = self.birth(node, tx_id);
        // Another submission may have a later birth, and may still take effect.
        let is_latest = self.births.get(&tx_id) == Some(&birth);
        match outcome {
            Outcome::NoQuorum if !self.unknown.contains(&tx_id) => {
                self.never.insert(tx_id, (node, birth, outcome.clone()));
            }
            Outcome::Unknown { .. } => {
                self.unknown.insert(tx_id);
            }
            Outcome::Overtaken { .. } if is_latest => {
                self.never.insert(tx_id, (node, birth, outcome.clone()));
            }
            Outcome::Expired { through } if is_latest => {
                self.expired.insert(tx_id, *through);
            }
            _ => {}
        }
        match (outcome, committed.index_of(tx_id)) {
            (Outcome::Unknown { absent_through } | Outcome::Overtaken { absent_through }, Some(index))
                if index <= *absent_through =>
            {
                Err(Violation::FalseAbsence { tx_id, index, absent_through: *absent_through })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the history has an acknowledged transaction at this index, with this result, and that it is durable.
    pub(crate) fn acknowledged(
        tx_id: TxId,
        index: Slot,
        result: Option<&Values>,
        history: &History,
        durability: &Durability,
    ) -> Checked {
        let row = history.row(index);
        match row.map(|row| (row, &row.entry.payload)) {
            Some((row, EntryPayload::Value(value)))
                if value.tx_id == tx_id && value.result.as_ref().ok() == result =>
            {
                durability.check(index, value.term, &row.voters, Commit::Acknowledged(tx_id))
            }
            _ => {
                let found = row.map(|row| Box::new(row.entry.clone()));
                Err(Violation::FalseAcknowledgement { tx_id, index, found })
            }
        }
    }

    /// Checks that the history has an acknowledged configuration change at this index.
    pub(crate) fn changed(to: &Configuration, slot: Slot, history: &History) -> Checked {
        let is_it =
            |to| history.row(slot).is_some_and(|row| row.entry.payload == EntryPayload::Configuration(to));
        is_it(to.clone()).then_some(()).ok_or_else(|| Violation::FalseChange { to: to.clone(), slot })
    }

    /// Checks at the end of the run that no transaction took effect after a node had excluded it.
    pub(crate) fn check(&self, committed: &AtMostOnce) -> Checked {
        for (tx_id, (node, birth, outcome)) in &self.never {
            if let Some(index) = committed.index_of(*tx_id) {
                let (tx_id, birth, node, outcome) = (*tx_id, *birth, *node, Box::new(outcome.clone()));
                return Err(Violation::FalseDenial { tx_id, birth, index, node, outcome });
            }
        }
        for (tx_id, through) in &self.expired {
            if let Some(index) = committed.index_of(*tx_id).filter(|index| index > through) {
                return Err(Violation::CommittedAfterExpiry { tx_id: *tx_id, index, through: *through });
            }
        }
        Ok(())
    }
}
