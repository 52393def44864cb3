//! Looking at steps without reading more than one may: every look goes through so many of the newest rows at most, and
//! says where to go on.

use crate::record::{StepRecord, TaskSummary};
use crate::{Filter, StepId, TaskId};

/// One look at the steps that match.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StepPage {
    /// The steps, newest first. There may be fewer than wanted, and even none, before the end.
    pub steps: Vec<StepRecord>,
    /// Where the next look begins; nothing at the end.
    pub next: Option<StepId>,
    /// Whether this look ended because it may not read more, and not because the page was full: what matches may be
    /// further down.
    pub is_cut: bool,
}

/// How many steps match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Count {
    /// So many.
    Exactly(u64),
    /// So many were found before the counting stopped, because it had counted or read as much as it may.
    AtLeast(u64),
}

impl Count {
    /// From what was counted, no further than one beyond `most`, and whether that was everything there is.
    pub(crate) const fn new(counted: u64, is_all: bool, most: u64) -> Self {
        match counted {
            counted if counted > most => Self::AtLeast(most),
            counted if is_all => Self::Exactly(counted),
            counted => Self::AtLeast(counted),
        }
    }

    /// What was counted.
    pub const fn counted(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

/// Tasks of which a step matches, and whether there may be more.
#[derive(Debug, Default)]
pub(crate) struct TasksSeen {
    pub(crate) tasks: Vec<TaskSummary>,
    pub(crate) next: Option<TaskId>,
}

/// What one table answered: what matches, newest first, and how far down the table was read.
#[derive(Debug)]
pub(crate) struct Part<T, K> {
    found: Vec<T>,
    /// Everything that matches down to this key is there; nothing means down to the end.
    floor: Option<K>,
}

/// What several tables answered together.
#[derive(Debug)]
pub(crate) struct Seen<T, K> {
    pub(crate) found: Vec<T>,
    /// Where to go on; nothing at the end.
    pub(crate) next: Option<K>,
    /// Whether there is room for more, and more may be further down.
    pub(crate) is_cut: bool,
}

impl<T, K: Ord + Copy> Part<T, K> {
    /// At most `wanted` that match, from down to a floor.
    pub(crate) fn new(found: Vec<T>, wanted: u32, floor: Option<K>, key: fn(&T) -> K) -> Self {
        let is_full = found.len() >= wanted as usize;
        let floor = if is_full { found.last().map(key) } else { floor };
        Self { found, floor }
    }
}

impl<T, K: Ord + Copy> Seen<T, K> {
    /// At most `limit` of what the tables answered, of which each was asked for one more.
    ///
    /// A table that was not read to its end says nothing about what is below its floor, so that only what is above
    /// everybody's floor is to be seen.
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
    /// Whether steps are passed over in a search by this, other than by their key.
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
