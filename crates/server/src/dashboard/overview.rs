//! The overview: failures, since when and why, and the backlog.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_work::{FailureStats, Moment, QueueStats, StatsBucket, StatsWindow};

use super::chrome::{Chrome, Visitor, render};
use super::formatting::{self, Bar, bars};
use super::query::PageQuery;
use crate::app::App;
use crate::problem::Problem;

/// The maximum number of rows in a short list.
const MAX_ROWS: usize = 8;
/// Work that has been due for longer than this is late.
const LATE_AFTER: Duration = Duration::from_secs(60);

/// The selectable windows of time: the word in the query, the label, and the duration.
const WINDOWS: [(&str, &str, Duration); 3] = [
    ("15m", "15 minutes", Duration::from_secs(15 * 60)),
    ("3h", "3 hours", Duration::from_secs(3 * 60 * 60)),
    ("24h", "24 hours", Duration::from_secs(24 * 60 * 60)),
];

const FIRST: (&str, &str, Duration) = WINDOWS[0];

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    chrome: Chrome,
    store: String,
    totals: Vec<StateTotal>,
    alarms: Vec<Alarm>,
    window: &'static str,
    windows: Vec<(&'static str, &'static str, bool)>,
    plot: String,
    rates: WindowTotals,
    classes: Vec<Bar>,
    attempts: Vec<Bar>,
    operations: Vec<Bar>,
    destinations: Vec<Bar>,
    open_breakers: Vec<String>,
    is_empty: bool,
}

/// The number of steps in a state, and the link to their list.
struct StateTotal {
    name: &'static str,
    about: &'static str,
    count: String,
    link: String,
    is_bad: bool,
}

/// A condition that needs the operator's attention.
struct Alarm {
    text: String,
    link: String,
    is_bad: bool,
}

/// The totals of the window.
struct WindowTotals {
    submitted: String,
    succeeded: String,
    retried: String,
    failed: String,
    conflicted: String,
    per_second: String,
    /// How long the oldest due step has been due. Paused steps do not count.
    oldest: String,
}

/// Shows what is failing, since when, and why.
#[utoipa::path(get, path = "/", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn overview(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let namespace = visitor.caller.own_namespace().map(str::to_owned);
    let requested = visitor.query.get("window");
    let (word, window, span) = WINDOWS.into_iter().find(|(word, ..)| *word == requested).unwrap_or(FIRST);
    let mut queues = app.work.stats().await?;
    queues.retain(|queue| visitor.caller.may_see(&queue.namespace));
    let stats = app.work.recent_stats(namespace.as_deref(), span).await?;
    // Circuit breakers are local to a node: only this node's breakers are known here.
    let open_breakers = if namespace.is_none() { app.open_breakers.names() } else { Vec::new() };
    let windows = WINDOWS.into_iter().map(|(known, name, _)| (known, name, known == word)).collect();
    let is_empty = queues.is_empty();
    let waits = queues.iter().filter(|queue| !queue.paused && queue.due > 0);
    let oldest = waits.map(|queue| queue.oldest_due).max().unwrap_or_default();
    render(&Overview {
        alarms: alarms(&app, &queues, &stats, &open_breakers, namespace.is_none()),
        totals: totals(&queues),
        chrome: visitor.page("/", "Overview"),
        store: app.store.to_string(),
        window,
        windows,
        plot: plot(&stats),
        rates: rates(&stats, span, oldest),
        classes: classes(&stats),
        attempts: attempts(&stats),
        operations: failing(&stats.operations, "operation"),
        destinations: failing(&stats.destinations, "destination"),
        open_breakers,
        is_empty,
    })
}

fn totals(queues: &[QueueStats]) -> Vec<StateTotal> {
    let sum = |count: fn(&QueueStats) -> u64| queues.iter().map(count).sum::<u64>();
    let all: [(&str, &str, u64, bool); 6] = [
        ("due", "ready and due", sum(|queue| queue.due), false),
        ("waiting", "ready, due later", sum(|queue| queue.waiting), false),
        ("running", "held by a worker", sum(|queue| queue.running), false),
        ("blocked", "waiting for other steps", sum(|queue| queue.blocked), false),
        ("failed", "failed for good", sum(|queue| queue.failed), true),
        ("conflicted", "waiting for a decision", sum(|queue| queue.conflicted), true),
    ];
    let total = |(name, about, count, bad): (&'static str, &'static str, u64, bool)| {
        let link = match name {
            "failed" => "/failed".to_owned(),
            "conflicted" => "/conflicts".to_owned(),
            "due" | "waiting" => "/steps?state=ready".to_owned(),
            state => format!("/steps?state={state}"),
        };
        StateTotal { name, about, count: formatting::number(count), link, is_bad: bad && count > 0 }
    };
    all.into_iter().map(total).collect()
}

/// Returns the conditions that need the operator's attention, the worst first.
fn alarms(
    app: &App,
    queues: &[QueueStats],
    stats: &StatsWindow,
    open_breakers: &[String],
    sees_all: bool,
) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let late = queues.iter().filter(|queue| !queue.paused && queue.oldest_due > LATE_AFTER);
    if let Some(queue) = late.max_by_key(|queue| queue.oldest_due) {
        let since = formatting::coarse(queue.oldest_due);
        let text = format!("{} has been due for {since}: too few workers claim it.", queue.operation);
        let query = PageQuery::default().with("operation", &queue.operation).with("state", "ready");
        alarms.push(Alarm { text, link: format!("/steps{}", query.link()), is_bad: true });
    }
    let open = |count: fn(&QueueStats) -> u64| queues.iter().map(count).sum::<u64>();
    let failed: u64 = stats.buckets.iter().map(|bucket| bucket.failed).sum();
    let given_up = open(|queue| queue.failed);
    if failed > 0 && given_up > 0 {
        let first =
            stats.buckets.iter().find(|bucket| bucket.failed > 0).map_or(stats.now, |bucket| bucket.at);
        let since = formatting::coarse(stats.now.since(first));
        let steps = formatting::many(given_up, "step has", "steps have");
        let text = format!("{steps} failed for good; {} in the last {since}.", times(failed));
        alarms.push(Alarm { text, link: "/failed".to_owned(), is_bad: true });
    }
    let conflicts = open(|queue| queue.conflicted);
    if conflicts > 0 {
        let text =
            format!("{} for a decision.", formatting::many(conflicts, "conflict waits", "conflicts wait"));
        alarms.push(Alarm { text, link: "/conflicts".to_owned(), is_bad: false });
    }
    match open_breakers {
        [] => {}
        [one] => {
            let text = format!("The circuit breaker of {one} is open, because requests to it fail.");
            alarms.push(Alarm { text, link: "#destinations".to_owned(), is_bad: false });
        }
        many => {
            let text = format!(
                "The circuit breakers of {} destinations are open, because requests to them fail.",
                many.len()
            );
            alarms.push(Alarm { text, link: "#destinations".to_owned(), is_bad: false });
        }
    }
    let paused: Vec<&QueueStats> = queues.iter().filter(|queue| queue.paused).collect();
    let text = match paused.as_slice() {
        [] => None,
        [one] => Some(format!(
            "{} is paused: {} due.",
            one.operation,
            formatting::many(one.due, "step is", "steps are")
        )),
        many => Some(format!("{} operations are paused.", many.len())),
    };
    alarms.extend(text.map(|text| Alarm { text, link: "/queues".to_owned(), is_bad: false }));
    if sees_all && app.work.drift().is_some() {
        let text = "Policy drift: the policy file of this node differs from the active version.".to_owned();
        alarms.push(Alarm { text, link: "/nodes".to_owned(), is_bad: false });
    }
    alarms
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", formatting::number(count)) }
}

/// Returns the series as JSON for the plot's script: times in seconds, and counts.
fn plot(stats: &StatsWindow) -> String {
    let buckets = trim(&stats.buckets);
    let column = |count: fn(&StatsBucket) -> u64| buckets.iter().map(count).collect::<Vec<_>>();
    let seconds = |at: Moment| at.as_micros() / 1_000_000;
    serde_json::json!({
        "times": buckets.iter().map(|bucket| seconds(bucket.at)).collect::<Vec<_>>(),
        "width": stats.width.as_secs(),
        "series": [
            { "name": "succeeded", "values": column(|bucket| bucket.succeeded) },
            { "name": "retried", "values": column(|bucket| bucket.retried) },
            { "name": "failed", "values": column(|bucket| bucket.failed) },
            { "name": "conflicted", "values": column(|bucket| bucket.conflicted) },
        ],
    })
    .to_string()
}

/// Returns the buckets without the last one, which is incomplete, and without the empty ones long before the first
/// event.
fn trim(buckets: &[StatsBucket]) -> &[StatsBucket] {
    const MIN_BUCKETS: usize = 24;
    let full = buckets.split_last().map_or(buckets, |(_, full)| full);
    let is_busy = |bucket: &StatsBucket| {
        bucket.submitted + bucket.succeeded + bucket.retried + bucket.failed + bucket.conflicted > 0
    };
    let first = full.iter().position(is_busy).unwrap_or(0).saturating_sub(1);
    full.get(first.min(full.len().saturating_sub(MIN_BUCKETS))..).unwrap_or(full)
}

fn rates(stats: &StatsWindow, span: Duration, oldest: Duration) -> WindowTotals {
    let sum = |count: fn(&StatsBucket) -> u64| stats.buckets.iter().map(count).sum::<u64>();
    let ended = sum(|bucket| bucket.succeeded + bucket.failed + bucket.conflicted);
    // The rate is taken over the time since the first event, because a daemon that has just started has no older data.
    let first = trim(&stats.buckets).first().map_or(stats.now, |bucket| bucket.at);
    let tenths = ended * 10 / stats.now.since(first).min(span).as_secs().max(1);
    WindowTotals {
        submitted: formatting::number(sum(|bucket| bucket.submitted)),
        succeeded: formatting::number(sum(|bucket| bucket.succeeded)),
        retried: formatting::number(sum(|bucket| bucket.retried)),
        failed: formatting::number(sum(|bucket| bucket.failed)),
        conflicted: formatting::number(sum(|bucket| bucket.conflicted)),
        oldest: formatting::coarse(oldest),
        per_second: format!("{}.{}", tenths / 10, tenths % 10),
    }
}

fn classes(stats: &StatsWindow) -> Vec<Bar> {
    let link = |class: &str| format!("/steps{}", PageQuery::default().with("class", class).link());
    let items = stats.classes.iter().take(MAX_ROWS);
    bars(items.map(|(class, count)| (class.clone(), *count, link(class), String::new())).collect())
}

fn attempts(stats: &StatsWindow) -> Vec<Bar> {
    let name = |attempt: u32| match attempt {
        1 => "after the 1st attempt".to_owned(),
        2 => "after the 2nd".to_owned(),
        3 => "after the 3rd".to_owned(),
        10.. => "after the 10th and later".to_owned(),
        other => format!("after the {other}th"),
    };
    let link = |attempt: u32| format!("/steps?min_failures={attempt}");
    let items = stats.attempts.iter();
    bars(items.map(|(attempt, count)| (name(*attempt), *count, link(*attempt), String::new())).collect())
}

/// Returns the items with the most failures.
fn failing(items: &[FailureStats], filter: &str) -> Vec<Bar> {
    let item = |item: &FailureStats| {
        let query = PageQuery::default().with(filter, &item.name).with("min_failures", "1");
        let all = item.failures + item.successes;
        let share = formatting::percent(item.failures, all);
        let share = share.split('.').next().unwrap_or_default();
        let class = item.last_class.as_deref().map_or_else(String::new, |class| format!(", lately {class}"));
        let suffix = match item.namespace.as_str() {
            "default" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        (
            item.name.clone(),
            item.failures,
            format!("/steps{}", query.link()),
            format!("{share} % of {}{class}", formatting::many(all, "attempt", "attempts") + &suffix),
        )
    };
    bars(items.iter().filter(|item| item.failures > 0).take(MAX_ROWS).map(item).collect())
}
