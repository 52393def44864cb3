//! What is not committed yet, on top of what is.

use std::collections::{BTreeMap, VecDeque};

use super::Diff;
use super::sum::Sum;

/// Diffs that are not committed yet, in their order. It holds the rows they touch, and nothing else of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay<K, V> {
    diffs: VecDeque<Diff<K, V>>,
    rows: BTreeMap<K, Laid<V>>,
    /// How many diffs were ever laid.
    laid: u64,
    /// The sum of the whole, where anything is laid.
    sum: Option<Sum>,
}

/// A row that covers the state's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Laid<V> {
    pub(super) value: Option<V>,
    /// The last diff that touched it: once that is in the state, the row covers nothing else.
    by: u64,
}

impl<K, V> Default for Overlay<K, V> {
    fn default() -> Self {
        Self { diffs: VecDeque::new(), rows: BTreeMap::new(), laid: 0, sum: None }
    }
}

impl<K, V> Overlay<K, V> {
    /// How many diffs are not committed yet.
    pub fn len(&self) -> usize {
        self.diffs.len()
    }

    /// Whether all is committed.
    pub fn is_empty(&self) -> bool {
        self.diffs.is_empty()
    }

    /// How many rows it holds.
    pub fn touched(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn rows(&self) -> &BTreeMap<K, Laid<V>> {
        &self.rows
    }

    pub(super) fn sum(&self) -> Option<&Sum> {
        self.sum.as_ref()
    }

    pub(super) fn oldest(&self) -> Option<&Diff<K, V>> {
        self.diffs.front()
    }
}

impl<K: Ord + Clone, V: Clone> Overlay<K, V> {
    /// Puts a diff on top that makes this sum of everything.
    pub(super) fn lay(&mut self, diff: Diff<K, V>, sum: Sum) {
        self.laid += 1;
        for change in &diff {
            let row = Laid { value: change.after.clone(), by: self.laid };
            self.rows.insert(change.key.clone(), row);
        }
        self.diffs.push_back(diff);
        self.sum = Some(sum);
    }

    /// Forgets the oldest diff: it is in the state now.
    pub(super) fn lift(&mut self) {
        let by = self.laid + 1 - self.diffs.len() as u64;
        let Some(diff) = self.diffs.pop_front() else { return };
        for change in &diff {
            if self.rows.get(&change.key).is_some_and(|row| row.by == by) {
                self.rows.remove(&change.key);
            }
        }
        if self.diffs.is_empty() {
            self.sum = None;
        }
    }
}
