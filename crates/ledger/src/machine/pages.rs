//! Rows in order, in shared pages. A copy of all rows costs one pointer for each page, and a later change copies only the
//! page that it touches: a snapshot is encoded from such a copy while transactions go on.

use std::sync::Arc;

/// The maximum number of rows of a page.
const PAGE_ROWS: usize = 64;

/// Rows in the order of their keys.
#[derive(Clone, Debug)]
pub(super) struct Pages<K, V> {
    /// Pages in order. None is empty.
    pages: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for Pages<K, V> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Pages<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K, V> Pages<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        rows(&self.pages)
    }

    pub(super) fn last_key(&self) -> Option<&K> {
        self.pages.last()?.last().map(|(key, _)| key)
    }
}

impl<K: Ord, V> Pages<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let page = self.pages.get(self.page_of(key))?;
        let at = page.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        page.get(at).map(|(_, value)| value)
    }

    /// Returns this row and all later rows, in order. Earlier rows are not examined.
    pub(super) fn starting_at(&self, key: &K) -> impl Iterator<Item = (&K, &V)> {
        let (page, later) = self.pages.get(self.page_of(key)..).and_then(<[_]>::split_first).unzip();
        let skipped = page.map_or(0, |page| page.partition_point(|(other, _)| other < key));
        let first = page.and_then(|page| page.get(skipped..)).unwrap_or_default();
        first.iter().map(|(key, value)| (key, value)).chain(rows(later.unwrap_or_default()))
    }

    /// Returns the index of the page that has this key, or to which it belongs.
    fn page_of(&self, key: &K) -> usize {
        let begins_before = |page: &Arc<Vec<(K, V)>>| page.first().is_some_and(|(first, _)| first <= key);
        self.pages.partition_point(begins_before).saturating_sub(1)
    }
}

impl<K: Ord + Clone, V: Clone> Pages<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        let index = self.page_of(&key);
        let Some(page) = self.pages.get_mut(index) else {
            self.pages.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return;
        };
        let page = Arc::make_mut(page);
        match page.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => {
                if let Some(row) = page.get_mut(at) {
                    row.1 = value;
                }
                return;
            }
            Err(at) => page.insert(at, (key, value)),
        }
        self.len += 1;
        if page.len() > PAGE_ROWS {
            // Rows that are inserted in order leave full pages behind.
            let is_last = index + 1 == self.pages.len();
            self.split(index, if is_last { PAGE_ROWS } else { PAGE_ROWS / 2 });
        }
    }

    fn split(&mut self, index: usize, at: usize) {
        if let Some(page) = self.pages.get_mut(index) {
            let rest = Arc::make_mut(page).split_off(at);
            self.pages.insert(index + 1, Arc::new(rest));
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        let index = self.page_of(key);
        let Some(page) = self.pages.get_mut(index) else { return };
        let Ok(at) = page.binary_search_by(|(other, _)| other.cmp(key)) else { return };
        self.len -= 1;
        if page.len() == 1 {
            self.pages.remove(index);
        } else {
            Arc::make_mut(page).remove(at);
        }
    }
}

fn rows<K, V>(pages: &[Arc<Vec<(K, V)>>]) -> impl Iterator<Item = (&K, &V)> {
    pages.iter().flat_map(|page| page.iter()).map(|(key, value)| (key, value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn pages_hold_the_rows_of_a_map_and_copies_do_not_change() {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in 0..3000_u32 {
                let key = if seed % 2 == 0 { rng.u32(..1000) } else { step };
                if rng.u8(..4) == 0 {
                    pages.remove(&key);
                    map.remove(&key);
                } else {
                    pages.insert(key, step);
                    map.insert(key, step);
                }
                if step % 500 == 0 {
                    copies.push((pages.clone(), map.clone()));
                }
            }
            copies.push((pages, map));
            for (pages, map) in copies {
                assert!(pages.iter().eq(&map) && pages.len() == map.len(), "seed {seed}");
                assert_eq!(pages.last_key(), map.keys().next_back());
                for key in (0..1001).step_by(7) {
                    assert_eq!(pages.get(&key), map.get(&key));
                    assert!(pages.starting_at(&key).eq(map.range(key..)), "seed {seed}: from {key}");
                }
            }
        }
    }
}
