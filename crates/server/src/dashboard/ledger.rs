//! Ledger: the leader, the progress of the members, and the history, the latest entries first.

mod entries;

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_ledger::Verified;
use holdoff_ledger::runtime::{MemberStatus, Status};
use holdoff_policy::PolicySet;

use self::entries::{History, history};
use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::words;
use crate::app::App;
use crate::ledgers::{Ledgers, Node, status};
use crate::problem::{Kind, Problem};
use crate::show::{highest, role};

/// The number of digits of a member's key that a page shows.
const SHORT_KEY: usize = 12;

/// How long the result of a verification is reused. An open page reloads often.
const VERIFIED_FOR: Duration = Duration::from_secs(30);

#[derive(Template)]
#[template(path = "ledger.html")]
struct LedgerPage {
    chrome: Chrome,
    tabs: Vec<Tab>,
    /// `None` if this daemon has no ledger.
    ledger: Option<Shown>,
}

/// A ledger that the visitor may select.
struct Tab {
    name: String,
    link: String,
    is_this: bool,
}

/// The selected ledger.
struct Shown {
    name: String,
    contact: String,
    state: Known,
}

/// The state of the selected ledger.
enum Known {
    /// No member has admitted this node.
    Joining,
    /// The node did not report its status, for this reason.
    Silent(String),
    Well(Box<Well>),
}

/// A ledger that this node has joined, and whose node reports its status.
struct Well {
    role: &'static str,
    role_state: &'static str,
    leader: Option<String>,
    facts: Vec<(&'static str, String)>,
    id: String,
    hash: String,
    state_hash: String,
    diverged: u64,
    verified: Result<Checked, String>,
    members: Vec<Row>,
    history: Result<History, String>,
}

/// The result of the verification of the history.
struct Checked {
    span: String,
    certified: String,
    broken: Option<String>,
}

/// A member.
struct Row {
    name: String,
    key: String,
    short: String,
    address: String,
    part: &'static str,
    /// Tags of the member: a word, and its CSS class.
    tags: Vec<(&'static str, &'static str)>,
    index: String,
    lag: String,
    is_behind: bool,
}

/// Who leads a ledger, who belongs to it, and what happened in it.
#[utoipa::path(get, path = "/ledger", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn ledger(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let named = visitor.access.only(visitor.query.text("namespace"))?;
    let strange =
        |_| Problem::new(Kind::InvalidQuery, "before: expected an index, as the page before links to");
    let before = visitor.query.text("before").map(|text| text.parse()).transpose().map_err(strange)?;
    let names: Vec<String> = match &app.ledgers {
        Some(ledgers) => ledgers.names().into_iter().map(|(name, _)| name).collect(),
        None => Vec::new(),
    };
    let names: Vec<String> = names.into_iter().filter(|name| visitor.access.sees(name)).collect();
    let usual = || names.iter().find(|name| *name == PolicySet::DEFAULT_NAMESPACE).or(names.first()).cloned();
    let chosen = named.filter(|named| visitor.access.own().is_none() || names.contains(named)).or_else(usual);
    let tab = |name: &String| Tab {
        link: Query::default().with("namespace", name).link(),
        is_this: chosen.as_ref() == Some(name),
        name: name.clone(),
    };
    let tabs = names.iter().map(tab).collect();
    let ledger = match (&app.ledgers, chosen) {
        (Some(ledgers), Some(name)) => Some(shown(ledgers, name, before).await?),
        _ => None,
    };
    render(&LedgerPage { chrome: visitor.page("/ledger", "Ledger"), tabs, ledger })
}

async fn shown(ledgers: &Ledgers, name: String, before: Option<u64>) -> Result<Shown, Problem> {
    let contact = ledgers.contact().to_string();
    let state = match ledgers.find(&name)? {
        None => Known::Joining,
        Some(node) => match status(&node).await {
            Ok(status) => Known::Well(Box::new(well(ledgers, &node, &status, before).await)),
            Err(why) => Known::Silent(why.detail().to_owned()),
        },
    };
    Ok(Shown { name, contact, state })
}

async fn well(ledgers: &Ledgers, node: &Node, status: &Status, before: Option<u64>) -> Well {
    let said = |why: Problem| why.detail().to_owned();
    let highest = highest(status);
    let leader = status.leader.map(|leader| {
        let named = status.members.iter().find(|member| member.key == leader);
        named.map_or_else(|| leader.to_string(), |member| member.member.name.clone())
    });
    let role = role(status.role);
    Well {
        role,
        role_state: match role {
            "leads" => "succeeded",
            "looks" => "failed",
            _ => "running",
        },
        leader,
        facts: facts(status, highest),
        id: status.ledger.to_string(),
        hash: status.head.hash.to_string(),
        state_hash: status.state_hash.to_string(),
        diverged: status.counts.diverged,
        verified: ledgers.verified(node, VERIFIED_FOR).await.map(|verified| checked(&verified)).map_err(said),
        members: status.members.iter().map(|member| row(member, status, highest)).collect(),
        history: history(node, before).await.map_err(said),
    }
}

fn facts(status: &Status, highest: u64) -> Vec<(&'static str, String)> {
    let (start, attempt) = status.term;
    vec![
        ("term", format!("from {} on, attempt {}", words::number(start.0), words::number(attempt))),
        ("for", words::coarse(status.tenure)),
        ("changes of leader since the start", words::number(status.core.leader_changes)),
        ("entries", words::number(status.head.index.0)),
        ("behind", words::number(highest.saturating_sub(status.head.index.0))),
        ("signed by a majority up to", words::number(status.certified.0)),
        ("transactions under way", words::number(status.pending as u64)),
        ("sent to another leader", words::number(status.core.rerouted)),
    ]
}

fn checked(verified: &Verified) -> Checked {
    Checked {
        span: format!("{} to {}", words::number(verified.first.0), words::number(verified.last.0)),
        certified: words::number(verified.certified.0),
        broken: verified.broken.clone(),
    }
}

fn row(member: &MemberStatus, status: &Status, highest: u64) -> Row {
    let lag = member.head.map(|head| highest.saturating_sub(head.index.0));
    let shown = |figure: Option<u64>| figure.map_or_else(|| "–".to_owned(), words::number);
    let key = member.key.to_string();
    Row {
        short: key.chars().take(SHORT_KEY).collect(),
        key,
        name: member.member.name.clone(),
        address: member.member.address.clone(),
        part: match (member.votes, member.member.votes) {
            (true, true) => "votes",
            (true, false) => "votes, and shall no longer",
            (false, true) => "shall vote",
            (false, false) => "learns",
        },
        tags: tags(member, status),
        index: shown(member.head.map(|head| head.index.0)),
        lag: shown(lag),
        is_behind: lag.is_some_and(|lag| lag > 0),
    }
}

fn tags(member: &MemberStatus, status: &Status) -> Vec<(&'static str, &'static str)> {
    let tags = [
        (("leads", "good"), status.leader == Some(member.key)),
        (("this node", ""), status.key == member.key),
        (("not heard of", "warn"), !member.is_here),
    ];
    tags.into_iter().filter_map(|(tag, is_so)| is_so.then_some(tag)).collect()
}
