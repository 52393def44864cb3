//! Diffs, the overlay of uncommitted diffs, and the rows that a goal sees.

use std::cmp::Ordering;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::iter::Peekable;
use std::ops::Bound::{Included, Unbounded};

use serde::{Deserialize, Serialize};

use super::limits::DIFF_BYTES;
use super::pages::Pages;
use super::sum::Sum;
use super::{Codec, DiffMismatch, GoalError};

/// Uncommitted diffs, in their order. The overlay holds only the rows that they touch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay<K, V> {
    diffs: VecDeque<Diff<K, V>>,
    rows: BTreeMap<K, OverlayRow<V>>,
    /// The number of diffs that were ever added.
    laid: u64,
    /// The sum of the state with the overlay, if the overlay has diffs.
    sum: Option<Sum>,
}

/// A row that replaces a row of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OverlayRow<V> {
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

    pub(super) fn rows(&self) -> &BTreeMap<K, OverlayRow<V>> {
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
    pub(super) fn stage(&mut self, diff: Diff<K, V>, sum: Sum) {
        self.laid += 1;
        for change in &diff {
            let row = OverlayRow { value: change.after.clone(), by: self.laid };
            self.rows.insert(change.key.clone(), row);
        }
        self.diffs.push_back(diff);
        self.sum = Some(sum);
    }

    /// Removes the oldest diff, which is now in the state.
    pub(super) fn drop_oldest(&mut self) {
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

/// The rows that a goal sees.
#[derive(Debug)]
pub struct TableView<'a, K, V> {
    rows: &'a Pages<K, V>,
    over: &'a BTreeMap<K, OverlayRow<V>>,
}

impl<K, V> Clone for TableView<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableView<'_, K, V> {}

impl<'a, K: Ord, V> TableView<'a, K, V> {
    pub(super) fn new(rows: &'a Pages<K, V>, over: &'a Overlay<K, V>) -> Self {
        Self { rows, over: over.rows() }
    }

    /// Returns the value of a row.
    pub fn get(self, key: &K) -> Option<&'a V> {
        match self.over.get(key) {
            Some(laid) => laid.value.as_ref(),
            None => self.rows.get(key),
        }
    }

    /// Returns this row and all later rows, in order. Earlier rows are not examined.
    pub fn starting_at(self, key: &K) -> impl Iterator<Item = (&'a K, &'a V)> {
        let rows = self.rows.starting_at(key).peekable();
        Merged { rows, over: self.over.range((Included(key), Unbounded)).peekable() }
    }
}

struct Merged<'a, K, V, I: Iterator> {
    rows: Peekable<I>,
    over: Peekable<Range<'a, K, OverlayRow<V>>>,
}

impl<'a, K: Ord, V, I: Iterator<Item = (&'a K, &'a V)>> Iterator for Merged<'a, K, V, I> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((covering, _)) = self.over.peek() else { return self.rows.next() };
            match self.rows.peek().map(|(row, _)| row.cmp(covering)) {
                Some(Ordering::Less) => return self.rows.next(),
                Some(Ordering::Equal) => drop(self.rows.next()),
                Some(Ordering::Greater) | None => {}
            }
            let (key, laid) = self.over.next()?;
            if let Some(value) = &laid.value {
                return Some((key, value));
            }
        }
    }
}

/// One row before and after a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowChange<K, V> {
    /// The key of the row.
    pub key: K,
    /// The value before the change.
    pub before: Option<V>,
    /// The value after the change.
    pub after: Option<V>,
}

/// The rows that change: each row once, in order, and each with a new value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<RowChange<K, V>>", into = "Vec<RowChange<K, V>>")]
#[serde(bound(
    serialize = "K: Clone + Serialize, V: Clone + Serialize",
    deserialize = "K: Ord + Deserialize<'de>, V: Eq + Deserialize<'de>"
))]
pub struct Diff<K, V>(Vec<RowChange<K, V>>);

/// The error for changes that are not a valid diff: a repeated row, rows out of order, or a change to the same value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid diff: each row must occur once, in order, and with a new value")]
pub struct BadDiff;

impl<K, V> Default for Diff<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Diff<K, V> {
    /// Returns the changes, in the order of their rows.
    pub fn iter(&self) -> std::slice::Iter<'_, RowChange<K, V>> {
        self.0.iter()
    }

    /// Returns true if the diff has no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the diff that undoes this diff.
    #[must_use]
    pub fn inverse(self) -> Self {
        let swap = |RowChange { key, before, after }| RowChange { key, before: after, after: before };
        Self(self.0.into_iter().map(swap).collect())
    }
}

impl<K: Ord + Clone + Codec, V: Eq + Clone + Codec> Diff<K, V> {
    /// Returns the changes that turn the rows of `view` into the wanted rows.
    pub(super) fn towards(
        view: TableView<'_, K, V>,
        wanted: BTreeMap<K, Option<V>>,
    ) -> Result<Self, GoalError> {
        let mut changes = Vec::new();
        let mut encoded = Vec::new();
        for (key, after) in wanted {
            let before = view.get(&key).cloned();
            if before == after {
                continue;
            }
            key.encode(&mut encoded);
            [&before, &after].into_iter().flatten().for_each(|value| value.encode(&mut encoded));
            if encoded.len() > DIFF_BYTES {
                return Err(GoalError::too_much("bytes of changes", DIFF_BYTES));
            }
            changes.push(RowChange { key, before, after });
        }
        Ok(Self(changes))
    }
}

impl<K: Ord + fmt::Display, V: Eq> Diff<K, V> {
    /// Checks that the diff was computed for these rows.
    pub(super) fn fits(&self, view: TableView<'_, K, V>) -> Result<(), DiffMismatch> {
        let wrong = self.iter().find(|change| view.get(&change.key) != change.before.as_ref());
        wrong.map_or(Ok(()), |change| Err(DiffMismatch(change.key.to_string())))
    }
}

impl<K: Ord, V: Eq> TryFrom<Vec<RowChange<K, V>>> for Diff<K, V> {
    type Error = BadDiff;

    fn try_from(changes: Vec<RowChange<K, V>>) -> Result<Self, BadDiff> {
        let in_order = changes.is_sorted_by(|one, next| one.key < next.key);
        let changing = changes.iter().all(|change| change.before != change.after);
        if in_order && changing { Ok(Self(changes)) } else { Err(BadDiff) }
    }
}

impl<K, V> From<Diff<K, V>> for Vec<RowChange<K, V>> {
    fn from(diff: Diff<K, V>) -> Self {
        diff.0
    }
}

impl<'a, K, V> IntoIterator for &'a Diff<K, V> {
    type Item = &'a RowChange<K, V>;
    type IntoIter = std::slice::Iter<'a, RowChange<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
