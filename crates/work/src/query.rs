//! Queries of steps: filters, pages, and actions on the selected steps.
//!
//! Every query reads a limited number of the newest rows, and returns the position to continue from.

use std::time::Duration;

use crate::record::{StepRecord, TaskSummary};
use crate::{Payload, StepId, StepState, TaskId};

/// Selects the steps that meet every condition given here.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct StepFilter {
    /// In one of these states; if empty, in any state.
    pub states: Vec<StepState>,
    /// Steps of this task.
    pub task: Option<TaskId>,
    /// This one step.
    pub step: Option<StepId>,
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this operation; `*` matches any sequence of characters.
    pub operation: Option<String>,
    /// Calling this host.
    pub destination: Option<String>,
    /// With a last failure of this class.
    pub class: Option<String>,
    /// With at least this number of failures.
    pub min_failures: Option<u32>,
    /// With at most this number of failures.
    pub max_failures: Option<u32>,
    /// Submitted at least this long ago.
    pub older_than: Option<Duration>,
    /// Submitted at most this long ago.
    pub newer_than: Option<Duration>,
    /// Ready or running for longer than this.
    pub stale_after: Option<Duration>,
    /// With this text in the step's name or its last message.
    pub text: Option<String>,
    /// With this [token](crate::StepRecord::token): the step has not changed since the caller read its record.
    pub token: Option<u64>,
}

impl StepFilter {
    /// Selects the steps of one task.
    pub fn task(task: TaskId) -> Self {
        Self { task: Some(task), ..Self::default() }
    }

    /// Selects one step.
    pub fn step(step: StepId) -> Self {
        Self { step: Some(step), ..Self::default() }
    }

    /// Selects the steps in one of these states.
    pub fn states(states: impl IntoIterator<Item = StepState>) -> Self {
        Self { states: states.into_iter().collect(), ..Self::default() }
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PageRequest {
    /// The maximum number of steps on the page.
    pub limit: u32,
    /// Only steps after this one, which is the last step of the previous page.
    pub after: Option<StepId>,
    /// Whether payloads and outputs are included.
    pub with_payloads: bool,
    /// The maximum number of steps that [a scan](crate::Work::scan) reads to find matches: this many finished steps,
    /// and this many unfinished ones.
    pub scan_limit: u32,
}

impl PageRequest {
    /// The maximum number of steps on one page.
    pub const MAX_LIMIT: u32 = 1000;

    /// The maximum of `scan_limit`.
    pub const MAX_SCANNED: u32 = 10_000;

    /// Returns the first page, with at most this number of steps.
    pub fn first(limit: u32) -> Self {
        Self {
            limit: limit.clamp(1, Self::MAX_LIMIT),
            after: None,
            with_payloads: false,
            scan_limit: Self::MAX_SCANNED,
        }
    }

    /// Continues after this step.
    #[must_use]
    pub fn after(mut self, step: StepId) -> Self {
        self.after = Some(step);
        self
    }

    /// Limits the number of steps that are read.
    #[must_use]
    pub fn with_scan_limit(mut self, steps: u32) -> Self {
        self.scan_limit = steps.clamp(1, Self::MAX_SCANNED);
        self
    }

    /// Includes payloads and outputs.
    #[must_use]
    pub fn with_payloads(mut self) -> Self {
        self.with_payloads = true;
        self
    }
}

impl Default for PageRequest {
    fn default() -> Self {
        Self::first(100)
    }
}

/// An action on the selected steps.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Failed and conflicted steps become ready, and all their attempts are available again.
    Retry,
    /// The tasks of the selected steps are cancelled: all their unfinished steps.
    Cancel,
    /// Failed and conflicted steps are discarded; the steps that depend on them stay blocked.
    Discard,
    /// Conflicted steps become ready, with a new payload if one is given.
    Resolve(Option<Payload>),
}

impl Action {
    /// Returns the word used in output, logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Discard => "discard",
            Self::Resolve(_) => "resolve",
        }
    }
}

/// One page of matching steps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StepPage {
    /// The steps, newest first. Before the end, a page may be short and even empty.
    pub steps: Vec<StepRecord>,
    /// The position of the next page; `None` at the end.
    pub next: Option<StepId>,
    /// Whether the query stopped at its read limit and not because the page was full. More matches may follow.
    pub is_truncated: bool,
}

/// The number of matching steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepCount {
    /// The exact number.
    Exactly(u64),
    /// A lower bound: the query stopped because it reached its limit of counted or read rows.
    AtLeast(u64),
}

impl StepCount {
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
pub(crate) struct ScannedTasks {
    pub(crate) tasks: Vec<TaskSummary>,
    pub(crate) next: Option<TaskId>,
}

/// The result of one table: the matching rows, newest first, and the position down to which the table was read.
#[derive(Debug)]
pub(crate) struct TablePage<T, K> {
    found: Vec<T>,
    /// `found` is complete down to this key; `None` means down to the end of the table.
    floor: Option<K>,
}

/// The merged result of several tables.
#[derive(Debug)]
pub(crate) struct MergedPage<T, K> {
    pub(crate) found: Vec<T>,
    /// The position to continue from; `None` at the end.
    pub(crate) next: Option<K>,
    /// Whether the page has room left and more matches may follow.
    pub(crate) is_truncated: bool,
}

impl<T, K: Ord + Copy> TablePage<T, K> {
    /// Creates the result of a query for at most `wanted` rows that read the table down to `floor`. If the result is
    /// full, it is complete only down to its last row.
    pub(crate) fn new(found: Vec<T>, wanted: u32, floor: Option<K>, key: fn(&T) -> K) -> Self {
        let is_full = found.len() >= wanted as usize;
        let floor = if is_full { found.last().map(key) } else { floor };
        Self { found, floor }
    }
}

impl<T, K: Ord + Copy> MergedPage<T, K> {
    /// Merges the results of several tables into at most `limit` rows. Each table was queried for one row more.
    ///
    /// The result of a table that was not read to its end is incomplete below its floor. The merged result therefore
    /// contains only rows at or above the highest floor.
    pub(crate) fn of(parts: impl IntoIterator<Item = TablePage<T, K>>, limit: u32, key: fn(&T) -> K) -> Self {
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
        Self { found, next, is_truncated: !is_full && floor.is_some() }
    }
}

impl From<MergedPage<StepRecord, StepId>> for StepPage {
    fn from(seen: MergedPage<StepRecord, StepId>) -> Self {
        Self { steps: seen.found, next: seen.next, is_truncated: seen.is_truncated }
    }
}

impl StepFilter {
    /// Returns whether a query with this filter skips rows by anything other than their key.
    pub(crate) fn skips_rows(&self) -> bool {
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
