//! The columns that statements return, and their conversion into records.
//!
//! One definition of a row gives both the column list of a statement and its reader, so that they cannot differ. The
//! reader looks up the position of each column by name once for a result set, and checks the type of every value.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::Uuid;

use crate::payload::Format;
use crate::record::{
    self, AttemptRecord, DelaySource, FailureReason, Moment, QueueStats, StepRecord, TaskSummary,
};
use crate::stats::NodeRecord;
use crate::store::{AttemptOutcome, ClaimRow, LaneId};
use crate::version::VersionRecord;
use crate::{Fingerprint, Kind, Lane, Payload, SignalRecord, StepId, StepState, TaskId, TaskState};

/// The table that a column list reads from. A column without an expression for a table of finished steps has the same
/// expression in both tables of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Postgres = 0,
    Sqlite = 1,
    PostgresDone = 2,
    SqliteDone = 3,
}

/// A column: its name, and its expression by [`Source`]. Without an expression, it is the column of this name in the
/// row called `s`.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) expressions: &'static [&'static str],
}

/// Defines rows. Each has `list(source)`, the column list, and `read(rows)`, the reader.
macro_rules! columns {
    ($(
        $(#[$meta:meta])*
        $row:ident { $( $column:ident: $type:ty $(= [$($expression:literal),+])? ),+ $(,)? }
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub(crate) struct $row { $( pub(crate) $column: $type ),+ }

        impl $row {
            const COLUMNS: &[Column] =
                &[$( Column { name: stringify!($column), expressions: &[$($($expression),+)?] } ),+];

            /// Reads all rows of a result set.
            pub(crate) fn read<'r, R>(rows: &'r [R]) -> sqlx::Result<Vec<Self>>
            where
                R: sqlx::Row,
                usize: sqlx::ColumnIndex<R>,
                for<'n> &'n str: sqlx::ColumnIndex<R>,
                $( $type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database> ),+
            {
                let Some(first) = rows.first() else { return Ok(Vec::new()) };
                $( let $column = sqlx::Column::ordinal(first.try_column(stringify!($column))?); )+
                rows.iter().map(|row| Ok(Self { $( $column: row.try_get($column)? ),+ })).collect()
            }
        }

        impl ColumnList for $row {
            const COLUMNS: &'static [Column] = Self::COLUMNS;
        }
    )+};
}

/// A row with a column list.
pub(crate) trait ColumnList {
    const COLUMNS: &'static [Column];
}

/// Expands to the column list of a row type, as a static string.
macro_rules! list {
    ($row:ty, $source:ident) => {{
        const COLUMNS: &[$crate::engine::columns::Column] =
            <$row as $crate::engine::columns::ColumnList>::COLUMNS;
        const SOURCE: usize = $crate::engine::columns::Source::$source as usize;
        const LENGTH: usize = $crate::engine::sql::list_length(COLUMNS, SOURCE);
        const BYTES: &[u8; LENGTH] = &$crate::engine::sql::list(COLUMNS, SOURCE);
        const TEXT: &str = $crate::engine::sql::text(BYTES);
        TEXT
    }};
}

pub(crate) use list;

columns! {
    /// A claimed step.
    ClaimColumns {
        task: Uuid = ["s.task", "task"],
        step: i32 = ["s.step", "step"],
        lane: LaneId = ["s.lane", "lane"],
        policy: i32 = ["s.policy", "policy"],
        lease: i64 = ["s.lease", "lease"],
        failures: i32 = ["s.failures", "failures"],
        last_delay_us: i64 = ["s.last_delay_us", "last_delay_us"],
        elapsed_us: i64 = [
            "case when s.failures = 0 then 0 else holdoff.micros(s.claimed_at) - holdoff.micros(s.first_at) end",
            "claimed_at - first_at"
        ],
        refreshed: bool = ["s.refreshed", "refreshed"],
        has_parents: bool = ["s.parents > 0", "parents > 0"],
        has_children: bool = ["s.children > 0", "children > 0"],
        trace: Option<String> = ["s.trace", "trace"],
        destination: Option<String> = ["s.destination", "destination"],
        format: i16 = ["s.format", "format"],
    }

    /// The content of a claimed step, and the position of its row.
    ClaimPayloadColumns {
        payload: Option<Vec<u8>> = ["s.payload", "payload"],
        ctid_hint: Option<String> = ["s.ctid::text", "null"],
    }

    /// The time since the claim of a step.
    HeldColumns {
        held_us: i64 = ["holdoff.micros(clock_timestamp()) - holdoff.micros(s.claimed_at)", "max(0, ?4 - claimed_at)"],
    }

    /// The key of a step.
    StepKeyColumns {
        task: Uuid = ["s.task", "task"],
        step: i32 = ["s.step", "step"],
    }

    /// A child, and the name and the output of its parent.
    InputColumns {
        task: Uuid = ["e.task", "e.task"],
        child: i32 = ["e.child", "e.child"],
        parent: String = ["coalesce(d.name, d.step::text)", "coalesce(d.name, cast(d.step as text))"],
        format: i16 = ["d.format", "d.format"],
        output: Option<Vec<u8>> = ["d.output", "d.output"],
    }

    /// A child, and the number of bytes in the outputs of its parents.
    InputSizeColumns {
        task: Uuid = ["e.task", "e.task"],
        child: i32 = ["e.child", "e.child"],
        total: i64 = ["coalesce(sum(octet_length(d.output)), 0)::bigint", "coalesce(sum(length(d.output)), 0)"],
    }

    /// A step that left `running` without success.
    ChangedColumns {
        task: Uuid = ["task", "task"],
        step: i32 = ["step", "step"],
        lane: LaneId = ["lane", "lane"],
        state: i16 = ["state", "state"],
        failures: i32 = ["failures", "failures"],
        trace: Option<String> = ["trace", "trace"],
    }

    /// The recorded outcome of a report.
    RecordedColumns {
        task: Uuid = ["x.task", "a.task", "x.task", "d.task"],
        step: i32 = ["x.step", "a.step", "x.step", "d.step"],
        lease: i64 = ["x.lease", "a.lease", "x.lease", "d.lease"],
        outcome: i16 = ["a.outcome", "a.outcome", "{outcome.succeeded}::smallint", "{outcome.succeeded}"],
    }

    /// A step in a list.
    StepColumns {
        task: Uuid,
        step: i32,
        name: Option<String>,
        state: i16,
        namespace: String = ["l.namespace", "l.namespace"],
        queue: String = ["l.queue", "l.queue"],
        operation: String = ["l.operation", "l.operation"],
        policy: Option<String> = ["p.name", "p.name"],
        priority: i16 = ["l.priority", "l.priority"],
        destination: Option<String>,
        failures: i32,
        rescues: i32,
        snoozes: i32,
        waiting: i32 = ["s.waiting", "s.waiting", "0", "0"],
        created_at: i64 = ["holdoff.micros(s.created_at)", "s.created_at"],
        due_at: Option<i64> = [
            "holdoff.micros(case when s.state = {running} then s.leased_until else s.due_at end)",
            "s.due_at",
            "null::bigint",
            "null"
        ],
        expires_at: Option<i64> = ["holdoff.micros(s.expires_at)", "s.expires_at", "null::bigint", "null"],
        claimed_at: Option<i64> = ["holdoff.micros(s.claimed_at)", "s.claimed_at"],
        ended_at: Option<i64> = ["holdoff.micros(s.ended_at)", "s.ended_at"],
        reason: Option<i16>,
        class: Option<String>,
        message: Option<String>,
        lease: i64,
        format: i16,
    }

    /// The payload of an unfinished step, or the output of a finished one.
    StepPayloadColumns {
        payload: Option<Vec<u8>> = ["s.payload", "s.payload", "s.output", "s.output"],
    }

    /// An attempt that did not succeed.
    AttemptColumns {
        step: i32 = ["a.step", "a.step"],
        attempt: i32 = ["a.attempt", "a.attempt"],
        lease: i64 = ["a.lease", "a.lease"],
        outcome: i16 = ["a.outcome", "a.outcome"],
        started_at: i64 = ["holdoff.micros(a.started_at)", "a.started_at"],
        took_us: i64 = ["a.took_us", "a.took_us"],
        worker: String = ["coalesce(w.name, '')", "coalesce(w.name, '')"],
        class: Option<String> = ["a.class", "a.class"],
        message: Option<String> = ["a.message", "a.message"],
        reason: Option<i16> = ["a.reason", "a.reason"],
        retry_after_us: Option<i64> = ["a.retry_after_us", "a.retry_after_us"],
        delay_us: Option<i64> = ["a.delay_us", "a.delay_us"],
        delay_source: Option<i16> = ["a.delay_source", "a.delay_source"],
    }

    /// A dependency between two steps of a task.
    EdgeColumns {
        parent: i32 = ["parent", "parent"],
        child: i32 = ["child", "child"],
    }

    /// A lane.
    LaneColumns {
        id: LaneId = ["id", "id"],
        namespace: String = ["namespace", "namespace"],
        queue: String = ["queue", "queue"],
        operation: String = ["operation", "operation"],
        kind: i16 = ["kind", "kind"],
        priority: i16 = ["priority", "priority"],
        paused: bool = ["paused", "paused"],
    }

    /// The numbers of all, due and stale steps of a lane in one state, and how long the oldest has been due.
    StateCountColumns {
        lane: LaneId = ["lane", "lane"],
        state: i16 = ["state", "state"],
        total: i64 = ["count(*)", "count(*)"],
        due: i64 = ["count(*) filter (where due_at <= now.now)", "sum(due_at <= ?1)"],
        stale: i64 = [
            "count(*) filter (where state in ({ready}, {running}) and created_at <= now.now - holdoff.span($1))",
            "0"
        ],
        oldest_us: Option<i64> = ["holdoff.micros(max(now.now)) - holdoff.micros(min(due_at))", "?1 - min(due_at)"],
    }

    /// The number of steps of a lane.
    LaneCountColumns {
        lane: LaneId = ["lane", "lane"],
        total: i64 = ["count(*)", "count(*)"],
    }

    /// The steps of a task in one state, with the operation of the task's first step if it is among them.
    TaskGroupColumns {
        task: Uuid,
        state: i16,
        total: i64 = ["count(*)", "count(*)"],
        created_at: i64 = ["holdoff.micros(min(s.created_at))", "min(s.created_at)"],
        ended_at: Option<i64> = ["holdoff.micros(max(s.ended_at))", "max(s.ended_at)"],
        namespace: String = ["min(l.namespace)", "min(l.namespace)"],
        operation: Option<String> = [
            "min(case when s.step = 0 then l.operation end)",
            "min(case when s.step = 0 then l.operation end)"
        ],
    }

    /// A signal.
    SignalColumns {
        namespace: String = ["namespace", "namespace"],
        fingerprint: Vec<u8> = ["fingerprint", "fingerprint"],
        task: Uuid = ["task", "task"],
        occurrences: i64 = ["occurrences", "occurrences"],
        first_at: i64 = ["holdoff.micros(first_at)", "first_at"],
        last_at: i64 = ["holdoff.micros(last_at)", "last_at"],
    }

    /// The task of a deduplication key.
    DedupColumns {
        namespace: String = ["d.namespace", "d.namespace"],
        key: String = ["d.key", "d.key"],
        task: Uuid = ["d.task", "d.task"],
    }

    /// A node.
    NodeColumns {
        name: String = ["name", "name"],
        version: String = ["version", "version"],
        started_at: i64 = ["holdoff.micros(started_at)", "started_at"],
        seen_at: i64 = ["holdoff.micros(seen_at)", "seen_at"],
        policies: String = ["policies", "policies"],
        drift: Option<String> = ["drift", "drift"],
        running: i64 = ["running", "running"],
        slots: i64 = ["slots", "slots"],
        finished: i64 = ["finished", "finished"],
        is_alive: bool = ["seen_at > clock_timestamp() - holdoff.span($1)", "seen_at > ?1"],
    }

    /// A version of the policies.
    VersionColumns {
        hash: Vec<u8> = ["hash", "hash"],
        active: bool = ["active", "active"],
        deployed_at: i64 = ["holdoff.micros(deployed_at)", "deployed_at"],
        deployed_by: Option<String> = ["deployed_by", "deployed_by"],
        activated_at: Option<i64> = ["holdoff.micros(activated_at)", "activated_at"],
        activated_by: Option<String> = ["activated_by", "activated_by"],
    }

    /// The counts of steps by outcome in one bucket of time.
    BucketColumns {
        start: i64 = ["holdoff.micros(at)", "at"],
        submitted: i64 = [
            "coalesce(sum(count) filter (where outcome = {stats.submitted}), 0)::bigint",
            "sum(iif(outcome = {stats.submitted}, count, 0))"
        ],
        succeeded: i64 = [
            "coalesce(sum(count) filter (where outcome = {outcome.succeeded}), 0)::bigint",
            "sum(iif(outcome = {outcome.succeeded}, count, 0))"
        ],
        retried: i64 = [
            "coalesce(sum(count) filter (where outcome = {outcome.retried}), 0)::bigint",
            "sum(iif(outcome = {outcome.retried}, count, 0))"
        ],
        failed: i64 = [
            "coalesce(sum(count) filter (where outcome = {outcome.failed}), 0)::bigint",
            "sum(iif(outcome = {outcome.failed}, count, 0))"
        ],
        conflicted: i64 = [
            "coalesce(sum(count) filter (where outcome = {outcome.conflicted}), 0)::bigint",
            "sum(iif(outcome = {outcome.conflicted}, count, 0))"
        ],
        other: i64 = [
            "coalesce(sum(count) filter (where outcome > {outcome.conflicted} and outcome < {stats.submitted}), 0)::bigint",
            "sum(iif(outcome > {outcome.conflicted} and outcome < {stats.submitted}, count, 0))"
        ],
    }

    /// A count by class, attempt, operation or destination, with the class of the last failure.
    BreakdownColumns {
        kind: i16 = ["s.kind", "kind"],
        namespace: String = ["s.namespace", "namespace"],
        name: String = ["s.name", "name"],
        outcome: i16 = ["s.outcome", "outcome"],
        total: i64 = ["s.total", "sum(count)"],
        class: Option<String> = ["p.class", "substr(max(at || class), 17)"],
    }
}

pub(crate) fn duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

pub(crate) fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

fn payload(format: i16, bytes: Option<Vec<u8>>) -> Payload {
    Payload { format: Format::of_code(format), bytes: bytes.unwrap_or_default().into() }
}

impl ClaimColumns {
    /// Returns the claimed step with this content.
    pub(crate) fn with_payload(self, content: ClaimPayloadColumns) -> ClaimRow {
        let format = self.format;
        ClaimRow {
            payload: payload(format, content.payload),
            ctid_hint: content.ctid_hint.map(Into::into),
            ..self.without_payload()
        }
    }

    /// Returns the claimed step without its content.
    pub(crate) fn without_payload(self) -> ClaimRow {
        ClaimRow {
            step: TaskId::from_uuid(self.task).step(self.step),
            lane: self.lane,
            policy: self.policy,
            lease: self.lease,
            failures: self.failures,
            last_delay: duration(self.last_delay_us),
            elapsed: duration(self.elapsed_us),
            refreshed: self.refreshed,
            has_parents: self.has_parents,
            has_children: self.has_children,
            trace: self.trace,
            payload: payload(self.format, None),
            ctid_hint: None,
            destination: self.destination.map(Into::into),
        }
    }
}

impl StepKeyColumns {
    pub(crate) fn id(&self) -> StepId {
        TaskId::from_uuid(self.task).step(self.step)
    }
}

impl ChangedColumns {
    pub(crate) fn id(&self) -> StepId {
        TaskId::from_uuid(self.task).step(self.step)
    }
}

impl RecordedColumns {
    /// Returns the step and the lease of the report.
    pub(crate) fn key(&self) -> (StepId, i64) {
        (TaskId::from_uuid(self.task).step(self.step), self.lease)
    }
}

impl InputColumns {
    /// Returns the child, and the name and the output of its parent.
    pub(crate) fn into_input(self) -> (StepId, String, Payload) {
        (TaskId::from_uuid(self.task).step(self.child), self.parent, payload(self.format, self.output))
    }
}

impl InputSizeColumns {
    /// Returns the child, and the size of its inputs.
    pub(crate) fn into_size(self) -> (StepId, u64) {
        (TaskId::from_uuid(self.task).step(self.child), count(self.total))
    }
}

impl StepColumns {
    /// Returns the record of a finished or unfinished step. `content` is its payload or output, if it was requested.
    pub(crate) fn into_record(self, is_finished: bool, content: Option<StepPayloadColumns>) -> StepRecord {
        let content = content.map(|content| payload(self.format, content.payload));
        let (payload, output) = if is_finished { (None, content) } else { (content, None) };
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        let state = StepState::of_code(self.state).unwrap_or(StepState::Failed);
        let has_due = matches!(state, StepState::Ready | StepState::Running);
        StepRecord {
            id: TaskId::from_uuid(self.task).step(self.step),
            name: self.name,
            state,
            namespace: self.namespace,
            queue: self.queue,
            operation: self.operation,
            policy: self.policy.unwrap_or_default(),
            priority: u8::try_from(self.priority).unwrap_or(u8::MAX),
            destination: self.destination,
            failures: count(self.failures),
            rescues: count(self.rescues),
            snoozes: count(self.snoozes),
            waiting_for: count(self.waiting),
            created_at: Moment(self.created_at),
            due_at: self.due_at.map(Moment).filter(|_| has_due),
            expires_at: self.expires_at.map(Moment),
            last_attempted_at: self.claimed_at.map(Moment),
            ended_at: self.ended_at.map(Moment),
            reason: self.reason.and_then(FailureReason::of_code),
            class: self.class,
            message: self.message,
            token: u64::try_from(self.lease).unwrap_or(0),
            payload,
            output,
        }
    }
}

impl AttemptColumns {
    pub(crate) fn into_record(self, task: TaskId) -> AttemptRecord {
        AttemptRecord {
            step: task.step(self.step),
            attempt: u32::try_from(self.attempt).unwrap_or(0),
            token: u64::try_from(self.lease).unwrap_or(0),
            outcome: AttemptOutcome::of_code(self.outcome).unwrap_or(AttemptOutcome::Failed),
            started_at: Moment(self.started_at),
            took: duration(self.took_us),
            worker: self.worker,
            class: self.class,
            message: self.message,
            reason: self.reason.and_then(FailureReason::of_code),
            retry_after: self.retry_after_us.map(duration),
            delay: self.delay_us.map(duration),
            delay_source: self.delay_source.and_then(DelaySource::of_code),
        }
    }
}

impl LaneColumns {
    pub(crate) fn into_lane(self) -> (LaneId, Lane) {
        let Self { id, namespace, queue, operation, kind, priority, .. } = self;
        let priority = u8::try_from(priority).unwrap_or(u8::MAX);
        (id, Lane { namespace, queue, operation, kind: Kind::of_code(kind), priority })
    }
}

/// Returns task summaries computed from groups of steps, newest first.
pub(crate) fn task_summaries(groups: Vec<TaskGroupColumns>) -> Vec<TaskSummary> {
    let mut tasks: BTreeMap<TaskId, TaskSummary> = BTreeMap::new();
    for group in groups {
        let id = TaskId::from_uuid(group.task);
        let task = tasks.entry(id).or_insert_with(|| TaskSummary {
            id,
            state: TaskState::Succeeded,
            namespace: group.namespace,
            operation: String::new(),
            created_at: Moment(group.created_at),
            ended_at: None,
            steps: Vec::new(),
        });
        task.created_at = task.created_at.min(Moment(group.created_at));
        task.ended_at = task.ended_at.max(group.ended_at.map(Moment));
        task.operation = group.operation.unwrap_or_else(|| std::mem::take(&mut task.operation));
        let state = StepState::of_code(group.state).unwrap_or(StepState::Failed);
        task.steps.push((state, count(group.total)));
    }
    for task in tasks.values_mut() {
        task.steps.sort_unstable();
        task.state = TaskState::of(task.steps.iter().map(|(state, _)| *state));
        task.ended_at = task.ended_at.filter(|_| task.state != TaskState::Running);
    }
    tasks.into_values().rev().collect()
}

/// Returns signals with the states of their tasks.
pub(crate) fn signal_records(rows: Vec<SignalColumns>, tasks: Vec<TaskSummary>) -> Vec<SignalRecord> {
    let tasks: BTreeMap<TaskId, TaskSummary> = tasks.into_iter().map(|task| (task.id, task)).collect();
    let record = |row: SignalColumns| {
        let task = TaskId::from_uuid(row.task);
        let known = tasks.get(&task);
        SignalRecord {
            namespace: row.namespace,
            fingerprint: Fingerprint::shown(&row.fingerprint),
            task,
            state: known.map_or(TaskState::Succeeded, |known| known.state),
            operation: known.map(|known| known.operation.clone()).unwrap_or_default(),
            occurrences: count(row.occurrences),
            first_at: Moment(row.first_at),
            last_at: Moment(row.last_at),
        }
    };
    rows.into_iter().map(record).collect()
}

impl NodeColumns {
    pub(crate) fn into_record(self) -> NodeRecord {
        // A dead node runs nothing.
        let now = |value: i64| if self.is_alive { count(value) } else { 0 };
        NodeRecord {
            running: now(self.running),
            finished_last_minute: now(self.finished),
            slots: count(self.slots),
            name: self.name,
            version: self.version,
            started_at: Moment(self.started_at),
            seen_at: Moment(self.seen_at),
            policies: self.policies,
            drift: self.drift,
            is_alive: self.is_alive,
        }
    }
}

impl VersionColumns {
    pub(crate) fn into_record(self) -> Option<VersionRecord> {
        Some(VersionRecord {
            id: crate::version::id_of(&self.hash)?,
            active: self.active,
            deployed_at: Moment(self.deployed_at),
            deployed_by: self.deployed_by,
            activated_at: self.activated_at.map(Moment),
            activated_by: self.activated_by,
        })
    }
}

/// Returns the statistics of every lane that has steps or is paused.
pub(crate) fn queue_stats(
    lanes: Vec<LaneColumns>,
    groups: Vec<StateCountColumns>,
    done: Vec<LaneCountColumns>,
) -> Vec<QueueStats> {
    let mut by_lane: BTreeMap<LaneId, (QueueStats, bool)> = BTreeMap::new();
    for LaneColumns { id, namespace, queue, operation, paused, .. } in lanes {
        let stats = QueueStats { namespace, queue, operation, paused, ..QueueStats::default() };
        by_lane.insert(id, (stats, paused));
    }
    for group in groups {
        if let Some((stats, is_used)) = by_lane.get_mut(&group.lane) {
            *is_used = true;
            record::count(stats, group.state, [group.total, group.due, group.stale], group.oldest_us);
        }
    }
    for LaneCountColumns { lane, total } in done {
        if let Some((stats, is_used)) = by_lane.get_mut(&lane) {
            *is_used = true;
            stats.succeeded += count(total);
        }
    }
    record::merge(by_lane.into_values().filter(|(_, is_used)| *is_used).map(|(stats, _)| stats))
}
