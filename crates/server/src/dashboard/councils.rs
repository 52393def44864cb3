//! Councils: the acceptor in this daemon, its activity, and the space that each council uses.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_council::acceptor::{
    AcceptorLimits, ConnectedClient, CouncilPage, CouncilQuery, CouncilSummary, Sort,
};
use holdoff_policy::as_micros_u64;
use holdoff_work::Moment;

use super::chrome::{Chrome, Visitor, render};
use super::formatting::{self, Bar, bars};
use super::query::PageQuery;
use crate::acceptor::{LocalAcceptor, moment_before, parse_sort};
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The number of councils on a page.
const ON_A_PAGE: usize = 50;
/// The maximum number of connected keys in the list.
const MAX_PEERS: usize = 20;
/// The maximum number of addresses for each key.
const MAX_ADDRESSES: usize = 4;
/// A council that uses this percentage of its limit is shown as nearly full.
const NEARLY_FULL_PERCENT: u64 = 80;

/// The sortable columns of councils: order, heading, and whether they are numeric.
const COLUMNS: [(Sort, &str, bool); 7] = [
    (Sort::ShortId, "Council", false),
    (Sort::Latest, "Latest slot", true),
    (Sort::Floor, "Compacted up to", true),
    (Sort::Slots, "Slots", true),
    (Sort::Bytes, "Bytes", true),
    (Sort::Mail, "Mail", true),
    (Sort::LastRequest, "Last request", false),
];

#[derive(Template)]
#[template(path = "councils.html")]
struct CouncilsPage {
    chrome: Chrome,
    /// `None` if this daemon runs no acceptor.
    acceptor: Option<AcceptorSummary>,
}

/// The acceptor.
struct AcceptorSummary {
    contact: String,
    /// Whether it listens on an unspecified address, so that its contact does not contain a reachable address.
    is_everywhere: bool,
    node: String,
    incarnation: String,
    started_at: Moment,
    stopped: Option<String>,
    /// Events of the last minute and since the start: a label, and a figure.
    recent: Vec<(&'static str, String)>,
    requests: Vec<(&'static str, String)>,
    rejected: Vec<Bar>,
    connections: String,
    peers: Vec<ConnectedPeer>,
    peers_left_out: usize,
    columns: Vec<Column>,
    kept: Result<CouncilTable, String>,
}

/// The connections of one key.
struct ConnectedPeer {
    key: String,
    count: usize,
    from: String,
}

/// The heading of a column.
struct Column {
    name: &'static str,
    is_number: bool,
    link: String,
    /// The value of `aria-sort`, if the table is sorted by this column.
    order: Option<&'static str>,
}

/// A page of the councils.
struct CouncilTable {
    count: String,
    memory: String,
    rows: Vec<CouncilRow>,
    is_first: bool,
    first: String,
    next: Option<String>,
}

struct CouncilRow {
    short_id: String,
    kept: Option<UsageFigures>,
    last_request: Option<Moment>,
}

/// The space that a council uses.
struct UsageFigures {
    latest: String,
    compacted: String,
    slots: String,
    bytes: String,
    quota: String,
    mail_messages: String,
    is_nearly_full: bool,
}

/// Shows the acceptor in this daemon and its councils.
#[utoipa::path(get, path = "/councils", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn councils(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let by = visitor.query.text("sort").map_or(Ok(Sort::default()), |word| parse_sort(&word))?;
    let after = visitor.query.text("after").map(|text| text.parse()).transpose();
    let invalid =
        |_| Problem::new(Kind::InvalidQuery, "after: expected a cursor, as in the link of the previous page");
    let query = CouncilQuery { sort: by, after: after.map_err(invalid)?, limit: ON_A_PAGE };
    let acceptor = match app.acceptor.as_deref() {
        Some(acceptor) => Some(summarize(acceptor, query).await),
        None => None,
    };
    render(&CouncilsPage { chrome: visitor.page("/councils", "Councils"), acceptor })
}

async fn summarize(acceptor: &LocalAcceptor, query: CouncilQuery) -> AcceptorSummary {
    let inspector = &acceptor.inspector;
    let (stats, connected) = (inspector.stats(), inspector.connected());
    let kept = acceptor.councils(query).await;
    let connections: usize = connected.iter().map(|peer| peer.from.len()).sum();
    let reason =
        |(reason, count): (&&str, &u64)| (reason.replace('_', " "), *count, String::new(), String::new());
    AcceptorSummary {
        contact: acceptor.contact(),
        is_everywhere: inspector.address().ip().is_unspecified(),
        node: acceptor.node_id(),
        incarnation: acceptor.incarnation(),
        started_at: acceptor.started_at,
        stopped: inspector.stopped().map(|why| why.to_string()),
        recent: recent(&stats.recent),
        requests: stats.requests.iter().map(|(kind, count)| (*kind, formatting::number(*count))).collect(),
        rejected: bars(stats.refused.iter().map(reason).collect()),
        connections: formatting::many(connections as u64, "connection", "connections"),
        peers_left_out: connected.len().saturating_sub(MAX_PEERS),
        peers: connected.iter().take(MAX_PEERS).map(peer).collect(),
        columns: COLUMNS.into_iter().map(|column| heading(column, query.sort)).collect(),
        kept: kept
            .map(|kept| table(&kept, &query, inspector.limits()))
            .map_err(|why| why.detail().to_owned()),
    }
}

fn recent(recent: &holdoff_council::acceptor::RecentActivity) -> Vec<(&'static str, String)> {
    let micros = as_micros_u64(recent.window).max(1);
    let tenths = |part: u64, whole: u64| {
        let tenths = (u128::from(part) * 10 + u128::from(whole) / 2) / u128::from(whole.max(1));
        format!("{}.{}", formatting::number(u64::try_from(tenths / 10).unwrap_or(u64::MAX)), tenths % 10)
    };
    let mean = if recent.batches == 0 { "–".to_owned() } else { tenths(recent.requests, recent.batches) };
    let took = |time: Option<Duration>| time.map_or_else(|| "–".to_owned(), formatting::fine);
    vec![
        ("requests per second", tenths(recent.requests.saturating_mul(1_000_000), micros)),
        ("average batch", mean),
        ("largest batch", formatting::number(recent.largest_batch)),
        ("commits", formatting::number(recent.commits)),
        ("commit, median", took(recent.commit_p50)),
        ("commit, 99th percentile", took(recent.commit_p99)),
    ]
}

fn peer(connected: &ConnectedClient) -> ConnectedPeer {
    let count = connected.from.len();
    let mut from: Vec<String> = connected.from.iter().take(MAX_ADDRESSES).map(ToString::to_string).collect();
    if count > MAX_ADDRESSES {
        from.push(format!("and {} more", count - MAX_ADDRESSES));
    }
    ConnectedPeer { key: connected.key.to_string(), count, from: from.join(", ") }
}

fn heading((sort, name, is_number): (Sort, &'static str, bool), by: Sort) -> Column {
    let order = if sort == Sort::ShortId { "ascending" } else { "descending" };
    Column { name, is_number, link: at(sort).link(), order: (sort == by).then_some(order) }
}

/// Returns the query of the page with this sort order.
fn at(sort: Sort) -> PageQuery {
    PageQuery::default().with("sort", sort.name())
}

fn table(found: &CouncilPage, query: &CouncilQuery, limits: &AcceptorLimits) -> CouncilTable {
    let most = formatting::number(limits.councils as u64);
    let next = found.next.map(|next| at(query.sort).with("after", &next.to_string()).link());
    CouncilTable {
        count: format!("{} of {most}", formatting::number(found.count as u64)),
        memory: formatting::bytes(found.memory as u64),
        rows: found.councils.iter().map(|line| row(line, limits)).collect(),
        is_first: query.after.is_none(),
        first: at(query.sort).link(),
        next,
    }
}

fn row(line: &CouncilSummary, limits: &AcceptorLimits) -> CouncilRow {
    let nearly = |part: u64, whole: usize| {
        part.saturating_mul(100) >= (whole as u64).saturating_mul(NEARLY_FULL_PERCENT)
    };
    let kept = line.usage.map(|kept| UsageFigures {
        latest: formatting::number(kept.latest.0),
        compacted: formatting::number(kept.floor.0),
        slots: formatting::number(kept.slots),
        bytes: formatting::bytes(kept.bytes),
        quota: formatting::bytes(limits.council.bytes as u64),
        mail_messages: formatting::number(kept.mail_messages),
        is_nearly_full: nearly(kept.bytes, limits.council.bytes)
            || nearly(kept.slots, limits.council.slots)
            || nearly(kept.mail_messages, limits.council.mail_messages),
    });
    CouncilRow {
        short_id: line.short_id.to_string(),
        kept,
        last_request: line.last_request.map(moment_before),
    }
}
