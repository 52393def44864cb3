//! Bounded queries of steps: every query reads a limited number of the newest rows, and returns the position to
//! continue from.

use crate::record::{StepRecord, TaskSummary};
use crate::{Filter, StepId, TaskId};

/// One page of matching steps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StepPage {
    /// The steps, newest first. Before the end, a page may be short and even empty.
    pub steps: Vec<StepRecord>,
    /// The position of the next page; `None` at the end.
    pub next: Option<StepId>,
    /// Whether the query stopped at its read limit and not because the page was full. More matches may follow.
    pub is_cut: bool,
}

/// The number of matching steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Count {
    /// The exact number.
    Exactly(u64),
    /// A lower bound: the query stopped because it reached its limit of counted or read rows.
    AtLeast(u64),
}

impl Count {
    /// Creates a count from the number of counted rows, which is at most `most` + 1, and from whether the query read
    /// all rows.
    pub(crate) const fn new(counted: u64, is_all: bool, most: u64) -> Self {
        match counted {
            counted if counted > most => Self::AtLeast(most),
            counted if is_all => Self::Exactly(counted),
            counted => Self::AtLeast(counted),
        }
    }

    /// Returns the number of counted steps.
    pub const fn counted(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

/// Tasks with a matching step, and the position of the next page if there may be more.
#[derive(Debug, Default)]
pub(crate) struct TasksSeen {
    pub(crate) tasks: Vec<TaskSummary>,
    pub(crate) next: Option<TaskId>,
}

/// The result of one table: the matching rows, newest first, and the position down to which the table was read.
#[derive(Debug)]
pub(crate) struct Part<T, K> {
    found: Vec<T>,
    /// `found` is complete down to this key; `None` means down to the end of the table.
    floor: Option<K>,
}

/// The merged result of several tables.
#[derive(Debug)]
pub(crate) struct Seen<T, K> {
    pub(crate) found: Vec<T>,
    /// The position to continue from; `None` at the end.
    pub(crate) next: Option<K>,
    /// Whether the page has room left and more matches may follow.
    pub(crate) is_cut: bool,
}

impl<T, K: Ord + Copy> Part<T, K> {
    /// Creates the result of a query for at most `wanted` rows that read the table down to `floor`. If the result is
    /// full, it is complete only down to its last row.
    pub(crate) fn new(found: Vec<T>, wanted: u32, floor: Option<K>, key: fn(&T) -> K) -> Self {
        let is_full = found.len() >= wanted as usize;
        let floor = if is_full { found.last().map(key) } else { floor };
        Self { found, floor }
    }
}

impl<T, K: Ord + Copy> Seen<T, K> {
    /// Merges the results of several tables into at most `limit` rows. Each table was queried for one row more.
    ///
    /// The result of a table that was not read to its end is incomplete below its floor. The merged result therefore
    /// contains only rows at or above the highest floor.
    pub(crate) fn of(parts: impl IntoIterator<Item = Part<T, K>>, limit: u32, key: fn(&T) -> K) -> Self {
        let (mut found, mut floor) = (Vec::new(), None);
        for part in parts {
            found.extend(part.found);
            floor = floor.max(part.floor);
        }
        found.retain(|one| floor.is_none_or(|floor| key(one) >= floor));
        found.sort_by_key(|one| std::cmp::Reverse(key(one)));
        found.dedup_by_key(|one| key(one));
        let is_full = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = if is_full { found.last().map(key) } else { floor };
        Self { found, next, is_cut: !is_full && floor.is_some() }
    }
}

impl From<Seen<StepRecord, StepId>> for StepPage {
    fn from(seen: Seen<StepRecord, StepId>) -> Self {
        Self { steps: seen.found, next: seen.next, is_cut: seen.is_cut }
    }
}

impl Filter {
    /// Returns whether a query with this filter skips rows by anything other than their key.
    pub(crate) fn passes_over(&self) -> bool {
        let Self { states, task, step, namespace, queue, operation, destination, class, .. } = self;
        let is_of_one_task = task.is_some() || step.is_some();
        let by_name = [namespace, queue, operation, destination, class].into_iter().any(Option::is_some);
        let by_count = self.min_failures.is_some() || self.max_failures.is_some() || self.token.is_some();
        let by_age =
            [self.older_than, self.newer_than, self.stale_after].into_iter().any(|age| age.is_some());
        let is_narrow = !states.is_empty() || by_name || by_count || by_age || self.text.is_some();
        is_narrow && !is_of_one_task
    }
}
