//! The readers of the sections `[work]`, `[http]` and `[signals]`.

use std::time::Duration;

use holdoff_policy::file::{DeTable, Reader, Section, SpannedValue};
use holdoff_policy::{MAX_DELAY, format_duration};

use super::credentials::{check_destination, check_host, read_list, read_url};
use super::{DAY, DestinationLimits, HttpSettings, MAX_BYTES, Network, NotifyRule, Settings, SignalSettings};

pub(super) const WORK_KEYS: &[&str] = &[
    "lease",
    "poll",
    "stale_after",
    "max_rescues",
    "max_payload",
    "max_output",
    "max_inputs",
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
const MAX_LANES: u64 = 1_000_000;

/// The maximum size of the inputs of a step. A worker holds those of all its running steps in memory.
const MAX_INPUTS: u64 = 1 << 30;

/// The maximum of row limits, which is more than any store holds.
const MAX_ROWS: u64 = 1_000_000_000_000;

/// Reads `[work]`, `[work.requeue]` and `[work.history]`.
pub(super) fn read_work(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    credentials: Option<&DeTable<'_>>,
    settings: &mut Settings,
) {
    let second = Duration::from_secs(1);
    let section = Section::new(reader, "[work]", table, WORK_KEYS);
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
    section.size(reader, "max_inputs", 1..=MAX_INPUTS, &mut settings.max_inputs);
    section.count(reader, "max_steps", 1..=1_000_000, &mut settings.max_steps);
    section.count(reader, "max_depth", 1..=MAX_ROWS, &mut settings.max_depth);
    section.count(reader, "max_lanes", 1..=MAX_LANES, &mut settings.max_lanes);
    section.count(reader, "max_namespace_lanes", 1..=MAX_LANES, &mut settings.max_namespace_lanes);
    section.duration(reader, "dedup_retention", Duration::ZERO..=MAX_DELAY, &mut settings.dedup_retention);
    read_requeue(reader, table, settings);
    read_history(reader, table, settings);
    if let Some(value) = table.get("notify") {
        settings.notify = read_notify(reader, value, credentials);
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
    section.duration(reader, "keep", Duration::ZERO..=MAX_RETENTION, &mut history.keep);
    section.duration(reader, "keep_failed", Duration::ZERO..=MAX_RETENTION, &mut history.keep_failed);
    section.count(reader, "max_rows", 0..=MAX_ROWS, &mut history.max_rows);
}

/// The maximum retention, ten years: some operators must keep records for that long.
const MAX_RETENTION: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

pub(super) const NOTIFY_KEYS: &[&str] = &["operation", "queue", "namespace", "url", "credential"];

/// Reads `[[work.notify]]`.
fn read_notify(
    reader: &mut Reader<'_>,
    value: &SpannedValue<'_>,
    credentials: Option<&DeTable<'_>>,
) -> Vec<NotifyRule> {
    const EXPECTED: &str = "tables, each under [[work.notify]] in double brackets";
    let Some(entries) = value.get_ref().as_array() else {
        reader.wrong_type(value, "work.notify", EXPECTED);
        return Vec::new();
    };
    let mut rules = Vec::new();
    for entry in entries {
        match entry.get_ref().as_table() {
            Some(table) => rules.extend(read_rule(reader, entry, table, credentials)),
            None => reader.wrong_type(entry, "an entry of work.notify", EXPECTED),
        }
    }
    rules
}

fn read_rule(
    reader: &mut Reader<'_>,
    entry: &SpannedValue<'_>,
    table: &DeTable<'_>,
    credentials: Option<&DeTable<'_>>,
) -> Option<NotifyRule> {
    let section = Section::new(reader, "[[work.notify]]", table, NOTIFY_KEYS);
    let notify = NotifyRule {
        operation: section.text(reader, "operation", "card.*"),
        queue: section.text(reader, "queue", "default"),
        namespace: section.text(reader, "namespace", "eu"),
        credential: credential(reader, &section, credentials),
        url: String::new(),
    };
    if !table.contains_key("url") {
        reader
            .problem(entry.span(), "an entry of work.notify has no `url`")
            .expected("url = \"https://example.com/hook\"");
    }
    Some(NotifyRule { url: read_url(reader, &section, "url")?, ..notify })
}

/// Reads the name of a credential that exists. A credential that has problems of its own counts as existing, so that
/// only its own problems are reported.
fn credential(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    credentials: Option<&DeTable<'_>>,
) -> Option<String> {
    let name = section.text(reader, "credential", "pager")?;
    let known: Vec<_> = credentials.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref()).collect();
    if known.contains(&name.as_str()) {
        return Some(name);
    }
    let (value, _) = section.get("credential")?;
    let expected = match known.as_slice() {
        [] => format!("a table [credentials.{name}]"),
        known => format!("one of {}", known.join(", ")),
    };
    reader
        .problem(value.span(), format!("credential `{name}` is not defined"))
        .expected(expected)
        .nearest(&name, known);
    None
}

pub(super) const HTTP_KEYS: &[&str] = &[
    "deny_private",
    "allow",
    "timeout",
    "max_timeout",
    "max_response",
    "max_redirects",
    "destination",
    "destinations",
];
pub(super) const DESTINATION_KEYS: &[&str] = &["concurrency", "rate", "budget", "breaker"];
pub(super) const BUDGET_KEYS: &[&str] = &["ratio", "burst", "floor"];
pub(super) const BREAKER_KEYS: &[&str] = &["failure_ratio", "min_calls", "window", "probes"];

const MILLISECOND: Duration = Duration::from_millis(1);
/// The maximum of the timeouts of requests.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Reads `[http]`, `[http.destination]` and `[http.destinations."HOST"]`.
pub(super) fn read_http(reader: &mut Reader<'_>, table: &DeTable<'_>, http: &mut HttpSettings) {
    let section = Section::new(reader, "[http]", table, HTTP_KEYS);
    if let Some((value, what)) = section.get("deny_private") {
        http.deny_private = reader.boolean(value, &what);
    }
    if let Some(value) = table.get("allow") {
        http.allow = read_allow(reader, value);
    }
    section.duration(reader, "max_timeout", MILLISECOND..=MAX_TIMEOUT, &mut http.max_timeout);
    section.duration(reader, "timeout", MILLISECOND..=http.max_timeout, &mut http.timeout);
    section.size(reader, "max_response", 1..=MAX_BYTES, &mut http.max_response);
    section.count(reader, "max_redirects", 0..=20, &mut http.max_redirects);
    if let Some(value) = table.get("destination")
        && let Some(own) = reader.table(value, "[http.destination]")
    {
        http.destination = read_destination(reader, "[http.destination]", own, &http.destination);
    }
    if let Some(value) = table.get("destinations")
        && let Some(destinations) = reader.table(value, "[http.destinations]")
    {
        read_destinations(reader, destinations, http);
    }
}

/// Reads the networks and the names of hosts that may be called although their addresses are private.
fn read_allow(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Vec<String> {
    const EXPECTED: &str =
        "a list of networks and hosts without ports, such as [\"10.0.0.0/8\", \"*.svc.cluster.local\"]";
    read_list(reader, value, "allow", EXPECTED, |text| match Network::parse(text) {
        Some(_) => Ok(()),
        None if text.contains([':', '/']) => {
            Err((format!("`{text}` is neither a network nor a host without a port"), None))
        }
        None => check_host(text),
    })
}

fn read_destinations(reader: &mut Reader<'_>, destinations: &DeTable<'_>, http: &mut HttpSettings) {
    for (name, value) in destinations {
        let host = name.get_ref().as_ref();
        let name_of_table = format!("[http.destinations.\"{host}\"]");
        let Some(table) = reader.table(value, &name_of_table) else { continue };
        if refuse_unquoted(reader, host, value, table) {
            continue;
        }
        if let Err((message, right)) = check_destination(host) {
            let problem = reader.problem(name.span(), message);
            problem.expected("a host such as \"api.example.com\", or a host and a port");
            problem.suggestion = right;
        }
        let destination = read_destination(reader, &name_of_table, table, &http.destination);
        http.destinations.insert(host.to_owned(), destination);
    }
}

/// `[http.destinations.api.example.com]` without quotes is a table `api` with a table `example` in it.
fn refuse_unquoted(
    reader: &mut Reader<'_>,
    host: &str,
    value: &SpannedValue<'_>,
    table: &DeTable<'_>,
) -> bool {
    let is_known = |key: &str| DESTINATION_KEYS.contains(&key);
    let deeper = table.iter().find(|(key, deeper)| !is_known(key.get_ref()) && deeper.get_ref().is_table());
    let Some((key, mut deeper)) = deeper.filter(|_| !reader.is_inline(value)) else { return false };
    let mut full = format!("{host}.{}", key.get_ref());
    while let Some((key, next)) = deeper.get_ref().as_table().and_then(|table| {
        table.iter().find(|(key, next)| !is_known(key.get_ref()) && next.get_ref().is_table())
    }) {
        full = format!("{full}.{}", key.get_ref());
        deeper = next;
    }
    reader
        .problem(key.span(), format!("`{full}` needs quotes, because it has a dot"))
        .expected(format!("[http.destinations.\"{full}\"]"));
    true
}

/// Reads a destination; a key that is absent is inherited.
fn read_destination(
    reader: &mut Reader<'_>,
    name: &str,
    table: &DeTable<'_>,
    inherited: &DestinationLimits,
) -> DestinationLimits {
    let mut destination = inherited.clone();
    let section = Section::new(reader, name, table, DESTINATION_KEYS);
    section.count(reader, "concurrency", 1..=100_000, &mut destination.concurrency);
    if table.contains_key("rate") {
        let mut rate = 1.0;
        section.number(reader, "rate", 0.001..=1_000_000.0, &mut rate);
        destination.rate = Some(rate);
    }
    if let Some(budget) = Section::inside(reader, table, "budget", "budget.", BUDGET_KEYS) {
        budget.number(reader, "ratio", 0.0..=1000.0, &mut destination.budget.ratio);
        budget.count(reader, "burst", 0..=1_000_000, &mut destination.budget.burst);
        budget.number(reader, "floor", 0.001..=1_000_000.0, &mut destination.retry_floor);
    }
    if let Some(section) = Section::inside(reader, table, "breaker", "breaker.", BREAKER_KEYS) {
        let breaker = &mut destination.breaker;
        section.number(reader, "failure_ratio", 0.0..=1.0, &mut breaker.failure_ratio);
        section.count(reader, "min_calls", 1..=1_000_000, &mut breaker.min_calls);
        section.duration(reader, "window", MILLISECOND..=DAY, &mut breaker.window);
        section.count(reader, "probes", 1..=1000, &mut breaker.probes);
    }
    destination
}

pub(super) const SIGNAL_KEYS: &[&str] = &["suppress_failed", "wait", "max_waiters"];

/// The maximum of `wait`. The sender of a signal waits for the response: at most this long, plus the time of the
/// store.
const MAX_SIGNAL_WAIT: Duration = Duration::from_secs(8);

/// Reads `[signals]`.
pub(super) fn read_signals(reader: &mut Reader<'_>, table: &DeTable<'_>, signals: &mut SignalSettings) {
    let section = Section::new(reader, "[signals]", table, SIGNAL_KEYS);
    section.duration(reader, "suppress_failed", Duration::ZERO..=MAX_DELAY, &mut signals.suppress_failed);
    section.duration(reader, "wait", Duration::ZERO..=MAX_SIGNAL_WAIT, &mut signals.wait);
    section.count(reader, "max_waiters", 1..=100_000, &mut signals.max_waiters);
}
