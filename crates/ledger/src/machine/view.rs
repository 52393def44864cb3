//! The rows that a goal sees: the committed rows with the uncommitted changes applied.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound::{Included, Unbounded};

use super::overlay::{Laid, Overlay};

/// The rows that a goal sees.
#[derive(Debug)]
pub struct View<'a, K, V> {
    rows: &'a BTreeMap<K, V>,
    over: &'a BTreeMap<K, Laid<V>>,
}

impl<K, V> Clone for View<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for View<'_, K, V> {}

impl<'a, K: Ord, V> View<'a, K, V> {
    pub(super) fn new(rows: &'a BTreeMap<K, V>, over: &'a Overlay<K, V>) -> Self {
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
        let rows = self.rows.range((Included(key), Unbounded)).peekable();
        Merged { rows, over: self.over.range((Included(key), Unbounded)).peekable() }
    }
}

struct Merged<'a, K, V> {
    rows: Peekable<Range<'a, K, V>>,
    over: Peekable<Range<'a, K, Laid<V>>>,
}

impl<'a, K: Ord, V> Iterator for Merged<'a, K, V> {
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
