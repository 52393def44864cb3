//! `[work]`, `[work.requeue]` and `[work.history]`

use std::time::Duration;

use holdoff_policy::file::{DeTable, Reader, Section};
use holdoff_policy::{MAX_DELAY, format_duration};

use super::{DAY, MAX_BYTES, Settings, notify};

pub(super) const KEYS: &[&str] = &[
    "lease",
    "poll",
    "stale_after",
    "max_rescues",
    "max_payload",
    "max_output",
    "max_steps",
    "max_depth",
    "max_lanes",
    "max_namespace_lanes",
    "dedup_retention",
    "requeue",
    "history",
    "notify",
];
pub(super) const REQUEUE_KEYS: &[&str] = &["shutdown", "rescue", "busy"];
pub(super) const HISTORY_KEYS: &[&str] = &["keep", "keep_failed", "max_rows"];

/// The maximum of the lane limits. A claim looks at the head of every lane, so it would be too slow with more.
const MANY_LANES: u64 = 1_000_000;

/// The maximum of row limits, which is more than any store holds.
const MANY: u64 = 1_000_000_000_000;

pub(super) fn read(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    credentials: Option<&DeTable<'_>>,
    settings: &mut Settings,
) {
    let second = Duration::from_secs(1);
    let section = Section::new(reader, "[work]", table, KEYS);
    section.duration(reader, "lease", second..=DAY, &mut settings.lease);
    section.duration(
        reader,
        "poll",
        Duration::from_millis(10)..=Duration::from_secs(3600),
        &mut settings.poll,
    );
    section.duration(reader, "stale_after", second..=MAX_DELAY, &mut settings.stale_after);
    section.count(reader, "max_rescues", 0..=1000, &mut settings.max_rescues);
    section.size(reader, "max_payload", 1..=MAX_BYTES, &mut settings.max_payload);
    section.size(reader, "max_output", 1..=MAX_BYTES, &mut settings.max_output);
    section.count(reader, "max_steps", 1..=1_000_000, &mut settings.max_steps);
    section.count(reader, "max_depth", 1..=MANY, &mut settings.max_depth);
    section.count(reader, "max_lanes", 1..=MANY_LANES, &mut settings.max_lanes);
    section.count(reader, "max_namespace_lanes", 1..=MANY_LANES, &mut settings.max_namespace_lanes);
    section.duration(reader, "dedup_retention", Duration::ZERO..=MAX_DELAY, &mut settings.dedup_retention);
    read_requeue(reader, table, settings);
    read_history(reader, table, settings);
    if let Some(value) = table.get("notify") {
        settings.notify = notify::read(reader, value, credentials);
    }
}

fn read_requeue(reader: &mut Reader<'_>, work: &DeTable<'_>, settings: &mut Settings) {
    let Some(section) = Section::inside(reader, work, "requeue", "requeue.", REQUEUE_KEYS) else { return };
    let stale_after = settings.stale_after;
    let requeue = &mut settings.requeue;
    for (key, into) in
        [("shutdown", &mut requeue.shutdown), ("rescue", &mut requeue.rescue), ("busy", &mut requeue.busy)]
    {
        section.duration(reader, key, Duration::ZERO..=MAX_DELAY, into);
        let Some((value, what)) = section.get(key).filter(|_| *into > stale_after) else { continue };
        let (wait, limit) = (format_duration(*into), format_duration(stale_after));
        reader
            .problem(value.span(), format!("{what} is {wait}, and a step counts as stale after {limit}"))
            .expected(format!("at most {limit}, or a longer stale_after"));
    }
}

fn read_history(reader: &mut Reader<'_>, work: &DeTable<'_>, settings: &mut Settings) {
    let Some(section) = Section::inside(reader, work, "history", "history.", HISTORY_KEYS) else { return };
    let history = &mut settings.history;
    section.duration(reader, "keep", Duration::ZERO..=LONGEST_KEPT, &mut history.keep);
    section.duration(reader, "keep_failed", Duration::ZERO..=LONGEST_KEPT, &mut history.keep_failed);
    section.count(reader, "max_rows", 0..=MANY, &mut history.max_rows);
}

/// The maximum retention, ten years: some operators must keep records for that long.
const LONGEST_KEPT: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
