//! The overview: failures, since when and why, and the backlog.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_work::{Beat, Failing, Moment, Pulse, QueueStats};

use super::bars::{Bar, bars};
use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::words;
use crate::app::App;
use crate::problem::Problem;

/// The maximum number of rows in a short list.
const TOP: usize = 8;
/// Work that has been due for longer than this is late.
const LATE: Duration = Duration::from_secs(60);

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
    place: String,
    totals: Vec<Total>,
    alarms: Vec<Alarm>,
    window: &'static str,
    windows: Vec<(&'static str, &'static str, bool)>,
    plot: String,
    rates: Rates,
    classes: Vec<Bar>,
    attempts: Vec<Bar>,
    operations: Vec<Bar>,
    destinations: Vec<Bar>,
    broken: Vec<String>,
    is_empty: bool,
}

/// The number of steps in a state, and the link to their list.
struct Total {
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
struct Rates {
    submitted: String,
    succeeded: String,
    retried: String,
    failed: String,
    conflicted: String,
    per_second: String,
    /// How long the oldest due step has been due. Paused steps do not count.
    oldest: String,
}

/// What is failing, since when, and why.
#[utoipa::path(get, path = "/", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn overview(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let own = visitor.access.own().map(str::to_owned);
    let asked = visitor.query.get("window");
    let (word, window, span) = WINDOWS.into_iter().find(|(word, ..)| *word == asked).unwrap_or(FIRST);
    let mut lanes = app.work.stats().await?;
    lanes.retain(|lane| visitor.access.sees(&lane.namespace));
    let pulse = app.work.pulse(own.as_deref(), span).await?;
    // Circuit breakers are local to a node: only this node's breakers are known here.
    let broken = if own.is_none() { app.broken.names() } else { Vec::new() };
    let windows = WINDOWS.into_iter().map(|(known, name, _)| (known, name, known == word)).collect();
    let is_empty = lanes.is_empty();
    let waits = lanes.iter().filter(|lane| !lane.paused && lane.due > 0);
    let oldest = waits.map(|lane| lane.oldest_due).max().unwrap_or_default();
    render(&Overview {
        alarms: alarms(&app, &lanes, &pulse, &broken, own.is_none()),
        totals: totals(&lanes),
        chrome: visitor.page("/", "Overview"),
        place: app.place.to_string(),
        window,
        windows,
        plot: plot(&pulse),
        rates: rates(&pulse, span, oldest),
        classes: classes(&pulse),
        attempts: attempts(&pulse),
        operations: failing(&pulse.operations, "operation"),
        destinations: failing(&pulse.destinations, "destination"),
        broken,
        is_empty,
    })
}

fn totals(lanes: &[QueueStats]) -> Vec<Total> {
    let sum = |count: fn(&QueueStats) -> u64| lanes.iter().map(count).sum::<u64>();
    let all: [(&str, &str, u64, bool); 6] = [
        ("due", "ready, and their time has come", sum(|lane| lane.due), false),
        ("waiting", "ready, and their time comes", sum(|lane| lane.waiting), false),
        ("running", "with a worker", sum(|lane| lane.running), false),
        ("blocked", "waiting for other steps", sum(|lane| lane.blocked), false),
        ("failed", "given up", sum(|lane| lane.failed), true),
        ("conflicted", "somebody must decide", sum(|lane| lane.conflicted), true),
    ];
    let total = |(name, about, count, bad): (&'static str, &'static str, u64, bool)| {
        let link = match name {
            "failed" => "/failed".to_owned(),
            "conflicted" => "/conflicts".to_owned(),
            "due" | "waiting" => "/steps?state=ready".to_owned(),
            state => format!("/steps?state={state}"),
        };
        Total { name, about, count: words::number(count), link, is_bad: bad && count > 0 }
    };
    all.into_iter().map(total).collect()
}

/// Returns the conditions that need the operator's attention, the worst first.
fn alarms(app: &App, lanes: &[QueueStats], pulse: &Pulse, broken: &[String], sees_all: bool) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let late = lanes.iter().filter(|lane| !lane.paused && lane.oldest_due > LATE);
    if let Some(lane) = late.max_by_key(|lane| lane.oldest_due) {
        let since = words::coarse(lane.oldest_due);
        let text = format!("{} has been due for {since}: nobody takes it, or too few do.", lane.operation);
        let query = Query::default().with("operation", &lane.operation).with("state", "ready");
        alarms.push(Alarm { text, link: format!("/steps{}", query.link()), is_bad: true });
    }
    let open = |count: fn(&QueueStats) -> u64| lanes.iter().map(count).sum::<u64>();
    let failed: u64 = pulse.buckets.iter().map(|beat| beat.failed).sum();
    let given_up = open(|lane| lane.failed);
    if failed > 0 && given_up > 0 {
        let first = pulse.buckets.iter().find(|beat| beat.failed > 0).map_or(pulse.now, |beat| beat.at);
        let since = words::coarse(pulse.now.since(first));
        let steps = words::many(given_up, "step is", "steps are");
        let text = format!("{steps} given up; it happened {} in the last {since}.", times(failed));
        alarms.push(Alarm { text, link: "/failed".to_owned(), is_bad: true });
    }
    let conflicts = open(|lane| lane.conflicted);
    if conflicts > 0 {
        let text = format!("{} for a decision.", words::many(conflicts, "conflict waits", "conflicts wait"));
        alarms.push(Alarm { text, link: "/conflicts".to_owned(), is_bad: false });
    }
    match broken {
        [] => {}
        [one] => {
            let text = format!("{one} is left alone for a while, because requests to it fail.");
            alarms.push(Alarm { text, link: "#destinations".to_owned(), is_bad: false });
        }
        many => {
            let text = format!(
                "{} destinations are left alone for a while, because requests to them fail.",
                many.len()
            );
            alarms.push(Alarm { text, link: "#destinations".to_owned(), is_bad: false });
        }
    }
    let paused: Vec<&QueueStats> = lanes.iter().filter(|lane| lane.paused).collect();
    let text = match paused.as_slice() {
        [] => None,
        [one] => Some(format!(
            "{} is paused: {} due.",
            one.operation,
            words::many(one.due, "step is", "steps are")
        )),
        many => Some(format!("{} operations are paused.", many.len())),
    };
    alarms.extend(text.map(|text| Alarm { text, link: "/queues".to_owned(), is_bad: false }));
    if sees_all && app.work.drift().is_some() {
        let text = "Policy drift: this node's own file is not what is in force.".to_owned();
        alarms.push(Alarm { text, link: "/nodes".to_owned(), is_bad: false });
    }
    alarms
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", words::number(count)) }
}

/// Returns the series as JSON for the plot's script: times in seconds, and counts.
fn plot(pulse: &Pulse) -> String {
    let beats = worth_drawing(&pulse.buckets);
    let column = |count: fn(&Beat) -> u64| beats.iter().map(count).collect::<Vec<_>>();
    let seconds = |at: Moment| at.as_micros() / 1_000_000;
    serde_json::json!({
        "times": beats.iter().map(|beat| seconds(beat.at)).collect::<Vec<_>>(),
        "width": pulse.width.as_secs(),
        "series": [
            { "name": "succeeded", "values": column(|beat| beat.succeeded) },
            { "name": "retried", "values": column(|beat| beat.retried) },
            { "name": "failed", "values": column(|beat| beat.failed) },
            { "name": "conflicted", "values": column(|beat| beat.conflicted) },
        ],
    })
    .to_string()
}

/// Returns the buckets without the last one, which is incomplete, and without the empty ones long before the first
/// event.
fn worth_drawing(beats: &[Beat]) -> &[Beat] {
    const LEAST: usize = 24;
    let full = beats.split_last().map_or(beats, |(_, full)| full);
    let is_busy =
        |beat: &Beat| beat.submitted + beat.succeeded + beat.retried + beat.failed + beat.conflicted > 0;
    let first = full.iter().position(is_busy).unwrap_or(0).saturating_sub(1);
    full.get(first.min(full.len().saturating_sub(LEAST))..).unwrap_or(full)
}

fn rates(pulse: &Pulse, span: Duration, oldest: Duration) -> Rates {
    let sum = |count: fn(&Beat) -> u64| pulse.buckets.iter().map(count).sum::<u64>();
    let ended = sum(|beat| beat.succeeded + beat.failed + beat.conflicted);
    // The rate is taken over the time since the first event, because a daemon that has just started has no older data.
    let first = worth_drawing(&pulse.buckets).first().map_or(pulse.now, |beat| beat.at);
    let tenths = ended * 10 / pulse.now.since(first).min(span).as_secs().max(1);
    Rates {
        submitted: words::number(sum(|beat| beat.submitted)),
        succeeded: words::number(sum(|beat| beat.succeeded)),
        retried: words::number(sum(|beat| beat.retried)),
        failed: words::number(sum(|beat| beat.failed)),
        conflicted: words::number(sum(|beat| beat.conflicted)),
        oldest: words::coarse(oldest),
        per_second: format!("{}.{}", tenths / 10, tenths % 10),
    }
}

fn classes(pulse: &Pulse) -> Vec<Bar> {
    let link = |class: &str| format!("/steps{}", Query::default().with("class", class).link());
    let items = pulse.classes.iter().take(TOP);
    bars(items.map(|(class, count)| (class.clone(), *count, link(class), String::new())).collect())
}

fn attempts(pulse: &Pulse) -> Vec<Bar> {
    let name = |attempt: u32| match attempt {
        1 => "after the 1st try".to_owned(),
        2 => "after the 2nd".to_owned(),
        3 => "after the 3rd".to_owned(),
        10.. => "after the 10th and later".to_owned(),
        other => format!("after the {other}th"),
    };
    let link = |attempt: u32| format!("/steps?min_failures={attempt}");
    let items = pulse.attempts.iter();
    bars(items.map(|(attempt, count)| (name(*attempt), *count, link(*attempt), String::new())).collect())
}

/// Returns the items with the most failures.
fn failing(items: &[Failing], filter: &str) -> Vec<Bar> {
    let item = |item: &Failing| {
        let query = Query::default().with(filter, &item.name).with("min_failures", "1");
        let all = item.failures + item.successes;
        let share = words::percent(item.failures, all);
        let share = share.split('.').next().unwrap_or_default();
        let class = item.last_class.as_deref().map_or_else(String::new, |class| format!(", lately {class}"));
        let place = match item.namespace.as_str() {
            "default" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        (
            item.name.clone(),
            item.failures,
            format!("/steps{}", query.link()),
            format!("{share} % of {}{class}", words::many(all, "try", "tries") + &place),
        )
    };
    bars(items.iter().filter(|item| item.failures > 0).take(TOP).map(item).collect())
}
