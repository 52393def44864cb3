//! The changes of a goal, as values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::DIFF_BYTES;
use super::{Coded, Failed, Misfit, View};

/// One row before and after a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change<K, V> {
    /// The key of the row.
    pub key: K,
    /// The value before the change.
    pub before: Option<V>,
    /// The value after the change.
    pub after: Option<V>,
}

/// The rows that change: each row once, in order, and each with a new value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<Change<K, V>>", into = "Vec<Change<K, V>>")]
#[serde(bound(
    serialize = "K: Clone + Serialize, V: Clone + Serialize",
    deserialize = "K: Ord + Deserialize<'de>, V: Eq + Deserialize<'de>"
))]
pub struct Diff<K, V>(Vec<Change<K, V>>);

/// The error for changes that are not a valid diff: a repeated row, rows out of order, or a change to the same value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a diff has each row once, in order, and changes it to something else")]
pub struct BadDiff;

impl<K, V> Default for Diff<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Diff<K, V> {
    /// Returns the changes, in the order of their rows.
    pub fn iter(&self) -> std::slice::Iter<'_, Change<K, V>> {
        self.0.iter()
    }

    /// Returns true if the diff has no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the diff that undoes this diff.
    #[must_use]
    pub fn inverse(self) -> Self {
        let swap = |Change { key, before, after }| Change { key, before: after, after: before };
        Self(self.0.into_iter().map(swap).collect())
    }
}

impl<K: Ord + Clone + Coded, V: Eq + Clone + Coded> Diff<K, V> {
    /// Returns the changes that turn the rows of `view` into the wanted rows.
    pub(super) fn towards(view: View<'_, K, V>, wanted: BTreeMap<K, Option<V>>) -> Result<Self, Failed> {
        let mut changes = Vec::new();
        let mut coded = Vec::new();
        for (key, after) in wanted {
            let before = view.get(&key).cloned();
            if before == after {
                continue;
            }
            key.encode(&mut coded);
            [&before, &after].into_iter().flatten().for_each(|value| value.encode(&mut coded));
            if coded.len() > DIFF_BYTES {
                return Err(Failed::too_much("bytes of changes", DIFF_BYTES));
            }
            changes.push(Change { key, before, after });
        }
        Ok(Self(changes))
    }
}

impl<K: Ord + fmt::Display, V: Eq> Diff<K, V> {
    /// Checks that the diff was computed for these rows.
    pub(super) fn fits(&self, view: View<'_, K, V>) -> Result<(), Misfit> {
        let wrong = self.iter().find(|change| view.get(&change.key) != change.before.as_ref());
        wrong.map_or(Ok(()), |change| Err(Misfit(change.key.to_string())))
    }
}

impl<K: Ord, V: Eq> TryFrom<Vec<Change<K, V>>> for Diff<K, V> {
    type Error = BadDiff;

    fn try_from(changes: Vec<Change<K, V>>) -> Result<Self, BadDiff> {
        let in_order = changes.is_sorted_by(|one, next| one.key < next.key);
        let changing = changes.iter().all(|change| change.before != change.after);
        if in_order && changing { Ok(Self(changes)) } else { Err(BadDiff) }
    }
}

impl<K, V> From<Diff<K, V>> for Vec<Change<K, V>> {
    fn from(diff: Diff<K, V>) -> Self {
        diff.0
    }
}

impl<'a, K, V> IntoIterator for &'a Diff<K, V> {
    type Item = &'a Change<K, V>;
    type IntoIter = std::slice::Iter<'a, Change<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
