//! Uncommitted diffs over the committed state.

use std::collections::{BTreeMap, VecDeque};

use super::Diff;
use super::sum::Sum;

/// Uncommitted diffs, in their order. The overlay holds only the rows that they touch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay<K, V> {
    diffs: VecDeque<Diff<K, V>>,
    rows: BTreeMap<K, Laid<V>>,
    /// The number of diffs that were ever added.
    laid: u64,
    /// The sum of the state with the overlay, if the overlay has diffs.
    sum: Option<Sum>,
}

/// A row that replaces a row of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Laid<V> {
    pub(super) value: Option<V>,
    /// The number of the last diff that touched the row. When that diff is in the state, the overlay drops the row.
    by: u64,
}

impl<K, V> Default for Overlay<K, V> {
    fn default() -> Self {
        Self { diffs: VecDeque::new(), rows: BTreeMap::new(), laid: 0, sum: None }
    }
}

impl<K, V> Overlay<K, V> {
    /// Returns the number of uncommitted diffs.
    pub fn len(&self) -> usize {
        self.diffs.len()
    }

    /// Returns true if there are no uncommitted diffs.
    pub fn is_empty(&self) -> bool {
        self.diffs.is_empty()
    }

    /// Returns the number of rows that the overlay holds.
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
    /// Adds a diff; `sum` is the sum of the state with the overlay after it.
    pub(super) fn lay(&mut self, diff: Diff<K, V>, sum: Sum) {
        self.laid += 1;
        for change in &diff {
            let row = Laid { value: change.after.clone(), by: self.laid };
            self.rows.insert(change.key.clone(), row);
        }
        self.diffs.push_back(diff);
        self.sum = Some(sum);
    }

    /// Removes the oldest diff, which is now in the state.
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
