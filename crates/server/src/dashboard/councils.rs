//! Councils: the acceptor in this daemon, its activity, and the space that each council uses.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_council::acceptor::{Connected, Councils, Limits, Line, Sort, Wish};
use holdoff_work::Moment;

use super::bars::{Bar, bars};
use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::words;
use crate::acceptor::{Acceptor, moment, sort};
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The number of councils on a page.
const ON_A_PAGE: usize = 50;
/// The maximum number of connected keys in the list.
const MOST_PEERS: usize = 20;
/// The maximum number of addresses for each key.
const MOST_ADDRESSES: usize = 4;
/// A council that uses this percentage of its limit is shown as nearly full.
const NEARLY: u64 = 80;

/// The sortable columns of councils: order, heading, and whether they are numeric.
const COLUMNS: [(Sort, &str, bool); 7] = [
    (Sort::Mark, "Council", false),
    (Sort::Latest, "Latest slot", true),
    (Sort::Floor, "Compacted up to", true),
    (Sort::Slots, "Slots kept", true),
    (Sort::Bytes, "Bytes", true),
    (Sort::Letters, "Letters", true),
    (Sort::Asked, "Last asked", false),
];

#[derive(Template)]
#[template(path = "councils.html")]
struct CouncilsPage {
    chrome: Chrome,
    /// `None` if this daemon runs no acceptor.
    acceptor: Option<Shown>,
}

/// The acceptor.
struct Shown {
    name: String,
    /// Whether it listens on an unspecified address, so that its contact does not contain a reachable address.
    is_everywhere: bool,
    node: String,
    life: String,
    since: Moment,
    stopped: Option<String>,
    /// Events of the last minute and since the start: a label, and a figure.
    lately: Vec<(&'static str, String)>,
    asked: Vec<(&'static str, String)>,
    refused: Vec<Bar>,
    connections: String,
    peers: Vec<Peer>,
    peers_left_out: usize,
    columns: Vec<Column>,
    kept: Result<Table, String>,
}

/// The connections of one key.
struct Peer {
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
struct Table {
    count: String,
    memory: String,
    rows: Vec<Row>,
    is_first: bool,
    first: String,
    next: Option<String>,
}

struct Row {
    mark: String,
    kept: Option<Figures>,
    asked: Option<Moment>,
}

/// The space that a council uses.
struct Figures {
    latest: String,
    compacted: String,
    slots: String,
    bytes: String,
    quota: String,
    letters: String,
    is_nearly_full: bool,
}

/// The acceptor in this daemon, and its councils.
#[utoipa::path(get, path = "/councils", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn councils(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let by = visitor.query.text("sort").map_or(Ok(Sort::default()), |word| sort(&word))?;
    let after = visitor.query.text("after").map(|text| text.parse()).transpose();
    let strange =
        |_| Problem::new(Kind::InvalidQuery, "after: expected a place, as the page before links to");
    let wish = Wish { sort: by, after: after.map_err(strange)?, limit: ON_A_PAGE };
    let acceptor = match app.acceptor.as_deref() {
        Some(acceptor) => Some(shown(acceptor, wish).await),
        None => None,
    };
    render(&CouncilsPage { chrome: visitor.page("/councils", "Councils"), acceptor })
}

async fn shown(acceptor: &Acceptor, wish: Wish) -> Shown {
    let lookout = &acceptor.lookout;
    let (figures, connected) = (lookout.figures(), lookout.connected());
    let kept = acceptor.councils(wish).await;
    let connections: usize = connected.iter().map(|peer| peer.from.len()).sum();
    let reason =
        |(reason, count): (&&str, &u64)| (reason.replace('_', " "), *count, String::new(), String::new());
    Shown {
        name: acceptor.name(),
        is_everywhere: lookout.address().ip().is_unspecified(),
        node: acceptor.node(),
        life: acceptor.life(),
        since: acceptor.since,
        stopped: lookout.stopped(),
        lately: lately(&figures.lately),
        asked: figures.asked.iter().map(|(kind, count)| (*kind, words::number(*count))).collect(),
        refused: bars(figures.refused.iter().map(reason).collect()),
        connections: words::many(connections as u64, "connection", "connections"),
        peers_left_out: connected.len().saturating_sub(MOST_PEERS),
        peers: connected.iter().take(MOST_PEERS).map(peer).collect(),
        columns: COLUMNS.into_iter().map(|column| head(column, wish.sort)).collect(),
        kept: kept.map(|kept| table(&kept, &wish, lookout.limits())).map_err(|why| why.detail().to_owned()),
    }
}

fn lately(lately: &holdoff_council::acceptor::Lately) -> Vec<(&'static str, String)> {
    let micros = u64::try_from(lately.over.as_micros()).unwrap_or(u64::MAX).max(1);
    let tenths = |part: u64, whole: u64| {
        let tenths = (u128::from(part) * 10 + u128::from(whole) / 2) / u128::from(whole.max(1));
        format!("{}.{}", words::number(u64::try_from(tenths / 10).unwrap_or(u64::MAX)), tenths % 10)
    };
    let mean = if lately.batches == 0 { "–".to_owned() } else { tenths(lately.questions, lately.batches) };
    let took = |time: Option<Duration>| time.map_or_else(|| "–".to_owned(), words::fine);
    vec![
        ("questions each second", tenths(lately.questions.saturating_mul(1_000_000), micros)),
        ("answered at once, on average", mean),
        ("answered at once, at most", words::number(lately.largest_batch)),
        ("times written", words::number(lately.commits)),
        ("half on disk within", took(lately.commit_p50)),
        ("99 of 100 within", took(lately.commit_p99)),
    ]
}

fn peer(connected: &Connected) -> Peer {
    let count = connected.from.len();
    let mut from: Vec<String> = connected.from.iter().take(MOST_ADDRESSES).map(ToString::to_string).collect();
    if count > MOST_ADDRESSES {
        from.push(format!("and {} more", count - MOST_ADDRESSES));
    }
    Peer { key: connected.key.to_string(), count, from: from.join(", ") }
}

fn head((sort, name, is_number): (Sort, &'static str, bool), by: Sort) -> Column {
    let order = if sort == Sort::Mark { "ascending" } else { "descending" };
    Column { name, is_number, link: at(sort).link(), order: (sort == by).then_some(order) }
}

/// Returns the query of the page with this sort order.
fn at(sort: Sort) -> Query {
    Query::default().with("sort", sort.name())
}

fn table(found: &Councils, wish: &Wish, limits: &Limits) -> Table {
    let most = words::number(limits.councils as u64);
    let next = found.next.map(|next| at(wish.sort).with("after", &next.to_string()).link());
    Table {
        count: format!("{} of {most}", words::number(found.count as u64)),
        memory: words::bytes(found.memory as u64),
        rows: found.lines.iter().map(|line| row(line, limits)).collect(),
        is_first: wish.after.is_none(),
        first: at(wish.sort).link(),
        next,
    }
}

fn row(line: &Line, limits: &Limits) -> Row {
    let nearly = |part: u64, whole: usize| part.saturating_mul(100) >= (whole as u64).saturating_mul(NEARLY);
    let kept = line.kept.map(|kept| Figures {
        latest: words::number(kept.latest.0),
        compacted: words::number(kept.floor.0),
        slots: words::number(kept.slots),
        bytes: words::bytes(kept.bytes),
        quota: words::bytes(limits.council.bytes as u64),
        letters: words::number(kept.letters),
        is_nearly_full: nearly(kept.bytes, limits.council.bytes)
            || nearly(kept.slots, limits.council.slots)
            || nearly(kept.letters, limits.council.letters),
    });
    Row { mark: line.mark.to_string(), kept, asked: line.asked.map(moment) }
}
