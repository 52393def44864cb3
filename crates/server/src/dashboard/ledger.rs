//! Ledger: the leader, the progress of the members, and the history, newest entries first.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_ledger::runtime::{DefaultMachine, HistoryEntry, LedgerStatus, MemberStatus};
use holdoff_ledger::{EntryPayload, Slot, Verification};
use holdoff_policy::PolicySet;

use super::chrome::{Chrome, Visitor, render};
use super::formatting;
use super::query::PageQuery;
use crate::app::App;
use crate::ledgers::{Ledgers, Node, status, with_timeout};
use crate::problem::{Kind, Problem};
use crate::view::{diff_lines, goal_text, highest, is_own, role};

/// The number of digits of a member's key that a page shows.
const SHORT_KEY_DIGITS: usize = 12;

/// How long the result of a verification is reused. An open page reloads often.
const VERIFICATION_MAX_AGE: Duration = Duration::from_secs(30);

#[derive(Template)]
#[template(path = "ledger.html")]
struct LedgerPage {
    chrome: Chrome,
    tabs: Vec<Tab>,
    /// `None` if this daemon has no ledger.
    ledger: Option<LedgerSummary>,
}

/// A ledger that the visitor may select.
struct Tab {
    name: String,
    link: String,
    is_this: bool,
}

/// The selected ledger.
struct LedgerSummary {
    name: String,
    contact: String,
    state: LedgerState,
}

/// The state of the selected ledger.
enum LedgerState {
    /// No member has added this node.
    Joining,
    /// The node did not report its status, for this reason.
    Unavailable(String),
    Available(Box<LedgerDetails>),
}

/// A ledger that this node has joined, and whose node reports its status.
struct LedgerDetails {
    role: &'static str,
    role_state: &'static str,
    leader: Option<String>,
    facts: Vec<(&'static str, String)>,
    id: String,
    hash: String,
    state_hash: String,
    diverged: u64,
    verified: Result<VerificationSummary, String>,
    members: Vec<MemberRow>,
    history: Result<HistoryTable, String>,
}

/// The result of the verification of the history.
struct VerificationSummary {
    span: String,
    certified: String,
    broken: Option<String>,
}

/// A member.
struct MemberRow {
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

/// Shows the leader, the members and the history of a ledger.
#[utoipa::path(get, path = "/ledger", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn ledger(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let named = visitor.caller.namespace_filter(visitor.query.text("namespace"))?;
    let invalid = |_| {
        Problem::new(Kind::InvalidQuery, "before: expected an index, as in the link of the previous page")
    };
    let before = visitor.query.text("before").map(|text| text.parse()).transpose().map_err(invalid)?;
    let names: Vec<String> = match &app.ledgers {
        Some(ledgers) => ledgers.names().into_iter().map(|(name, _)| name).collect(),
        None => Vec::new(),
    };
    let names: Vec<String> =
        names.into_iter().filter(|name| app.may_see_ledger(&visitor.caller, name)).collect();
    let default_ledger =
        || names.iter().find(|name| *name == PolicySet::DEFAULT_NAMESPACE).or(names.first()).cloned();
    let chosen = named
        .filter(|named| visitor.caller.own_namespace().is_none() || names.contains(named))
        .or_else(default_ledger);
    let tab = |name: &String| Tab {
        link: PageQuery::default().with("namespace", name).link(),
        is_this: chosen.as_ref() == Some(name),
        name: name.clone(),
    };
    let tabs = names.iter().map(tab).collect();
    let ledger = match (&app.ledgers, chosen) {
        (Some(ledgers), Some(name)) => Some(summarize(ledgers, name, before).await?),
        _ => None,
    };
    render(&LedgerPage { chrome: visitor.page("/ledger", "Ledger"), tabs, ledger })
}

async fn summarize(ledgers: &Ledgers, name: String, before: Option<u64>) -> Result<LedgerSummary, Problem> {
    let contact = ledgers.contact().to_string();
    let state = match ledgers.find(&name)? {
        None => LedgerState::Joining,
        Some(node) => match status(&node).await {
            Ok(status) => LedgerState::Available(Box::new(details(ledgers, &node, &status, before).await)),
            Err(why) => LedgerState::Unavailable(why.detail().to_owned()),
        },
    };
    Ok(LedgerSummary { name, contact, state })
}

async fn details(
    ledgers: &Ledgers,
    node: &Node,
    status: &LedgerStatus,
    before: Option<u64>,
) -> LedgerDetails {
    let detail = |why: Problem| why.detail().to_owned();
    let highest = highest(status);
    let leader = status.leader.map(|leader| {
        let named = status.members.iter().find(|member| member.key == leader);
        named.map_or_else(|| leader.to_string(), |member| member.member.name.clone())
    });
    let role = role(status.role);
    LedgerDetails {
        role,
        role_state: match role {
            "leader" => "succeeded",
            "candidate" => "failed",
            _ => "running",
        },
        leader,
        facts: facts(status, highest),
        id: status.ledger.to_string(),
        hash: status.head.hash.to_string(),
        state_hash: status.state_hash.to_string(),
        diverged: status.counts.diverged,
        verified: ledgers
            .verified(node, VERIFICATION_MAX_AGE)
            .await
            .map(|verified| checked(&verified))
            .map_err(detail),
        members: status.members.iter().map(|member| member_row(member, status, highest)).collect(),
        history: history(node, before).await.map_err(detail),
    }
}

fn facts(status: &LedgerStatus, highest: u64) -> Vec<(&'static str, String)> {
    let (start, attempt) = status.term;
    vec![
        (
            "term",
            format!("from index {}, attempt {}", formatting::number(start.0), formatting::number(attempt)),
        ),
        ("leader for", formatting::coarse(status.tenure)),
        ("leader changes since the start", formatting::number(status.core.leader_changes)),
        ("last index", formatting::number(status.head.index.0)),
        ("lag", formatting::number(highest.saturating_sub(status.head.index.0))),
        ("signed by a majority up to index", formatting::number(status.certified.0)),
        ("pending transactions", formatting::number(status.pending as u64)),
        ("rerouted transactions", formatting::number(status.core.rerouted)),
    ]
}

fn checked(verified: &Verification) -> VerificationSummary {
    VerificationSummary {
        span: format!("{} to {}", formatting::number(verified.first.0), formatting::number(verified.last.0)),
        certified: formatting::number(verified.certified.0),
        broken: verified.mismatch.clone(),
    }
}

fn member_row(member: &MemberStatus, status: &LedgerStatus, highest: u64) -> MemberRow {
    let lag = member.head.map(|head| highest.saturating_sub(head.index.0));
    let figure_text = |figure: Option<u64>| figure.map_or_else(|| "–".to_owned(), formatting::number);
    let key = member.key.to_string();
    MemberRow {
        short: key.chars().take(SHORT_KEY_DIGITS).collect(),
        key,
        name: member.member.name.clone(),
        address: member.member.address.clone(),
        part: match (member.votes, member.member.votes) {
            (true, true) => "voter",
            (true, false) => "voter, to be removed",
            (false, true) => "learner, to become a voter",
            (false, false) => "learner",
        },
        tags: tags(member, status),
        index: figure_text(member.head.map(|head| head.index.0)),
        lag: figure_text(lag),
        is_behind: lag.is_some_and(|lag| lag > 0),
    }
}

fn tags(member: &MemberStatus, status: &LedgerStatus) -> Vec<(&'static str, &'static str)> {
    let tags = [
        (("leader", "good"), status.leader == Some(member.key)),
        (("this node", ""), status.key == member.key),
        (("unreachable", "warn"), !member.is_reachable),
    ];
    tags.into_iter().filter_map(|(tag, is_so)| is_so.then_some(tag)).collect()
}

/// The number of entries on a page.
const ON_A_PAGE: u64 = 25;
/// The maximum number of characters shown of a goal or a line.
const MAX_CHARS: usize = 240;
/// The maximum number of lines shown of an entry's changes.
const MAX_LINES: usize = 8;

/// The reason shown if a daemon's own transaction changed nothing: its compare-and-set failed.
const LOST_RACE: &str = "lost the race against another daemon";

/// Entries, the latest first.
struct HistoryTable {
    rows: Vec<EntryRow>,
    /// Whether the page shows the latest entries.
    is_latest: bool,
    latest: String,
    older: Option<String>,
    /// The first entry that the node keeps, if it has compacted older ones.
    first: Option<String>,
}

/// An entry.
struct EntryRow {
    index: String,
    goal: String,
    /// Whether the goal is a client's text, and not a description by this page.
    is_code: bool,
    tx_id: Option<String>,
    failed: Option<String>,
    diff: Vec<DiffLine>,
    left_out: usize,
}

/// A row that the entry removed or added.
struct DiffLine {
    class: &'static str,
    sign: &'static str,
    text: String,
}

/// Returns the entries before this index, or the latest ones.
async fn history(node: &Node, before: Option<u64>) -> Result<HistoryTable, Problem> {
    let head = node.watch_status().borrow().head.index.0;
    let end = before.map_or(head, |before| head.min(before.saturating_sub(1)));
    let mut after = end.saturating_sub(ON_A_PAGE);
    let mut first = 1;
    let pages = loop {
        let wanted = usize::try_from(end.saturating_sub(after)).unwrap_or(usize::MAX);
        match with_timeout(node.history(Slot(after), wanted)).await? {
            Ok(pages) => break pages,
            Err(kept) if kept.0 <= after.saturating_add(1) || kept.0 > end => {
                first = kept.0;
                break Vec::new();
            }
            Err(kept) => (first, after) = (kept.0, kept.0 - 1),
        }
    };
    let at = |query: PageQuery| query.with("namespace", node.namespace()).link();
    let oldest = pages.first().map(|page| page.index.0);
    let older = oldest.filter(|oldest| *oldest > first);
    Ok(HistoryTable {
        rows: pages.iter().rev().map(entry_row).collect(),
        is_latest: before.is_none(),
        latest: at(PageQuery::default()),
        older: older.map(|oldest| at(PageQuery::default().with("before", &oldest.to_string()))),
        first: (first > 1).then(|| formatting::number(first)),
    })
}

fn entry_row(page: &HistoryEntry<DefaultMachine>) -> EntryRow {
    let plain = EntryRow {
        index: formatting::number(page.index.0),
        goal: String::new(),
        is_code: false,
        tx_id: None,
        failed: None,
        diff: Vec::new(),
        left_out: 0,
    };
    match &page.entry.payload {
        EntryPayload::NoOp => EntryRow { goal: "No-op entry of a new leader.".to_owned(), ..plain },
        EntryPayload::Configuration(voters) => {
            let count = voters.acceptors().len() as u64;
            EntryRow {
                goal: format!("New configuration: {}.", formatting::many(count, "voter", "voters")),
                ..plain
            }
        }
        EntryPayload::Value(written) => {
            let lines = diff_lines(written);
            let (is_own, failed) = (is_own(written), written.result.as_ref().err());
            EntryRow {
                goal: if is_own {
                    "A daemon's transaction for locks or signals.".to_owned()
                } else {
                    cut(&goal_text(&written.goal))
                },
                is_code: !is_own,
                tx_id: (!is_own).then(|| written.tx_id.to_string()),
                failed: failed.map(|why| if is_own { LOST_RACE.to_owned() } else { cut(&why.to_string()) }),
                left_out: lines.len().saturating_sub(MAX_LINES),
                diff: lines.iter().take(MAX_LINES).map(|text| diff_line(text)).collect(),
                ..plain
            }
        }
    }
}

/// Splits a line of a diff into its sign and its text.
fn diff_line(text: &str) -> DiffLine {
    match text.strip_prefix("- ") {
        Some(gone) => DiffLine { class: "before", sign: "−", text: cut(gone) },
        None => DiffLine { class: "after", sign: "+", text: cut(text.strip_prefix("+ ").unwrap_or(text)) },
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"ü".repeat(MAX_CHARS + 1));
        assert_eq!((long.chars().count(), long.ends_with("ü…")), (MAX_CHARS + 1, true));
    }
}
