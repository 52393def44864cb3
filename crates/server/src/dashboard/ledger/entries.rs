//! The history on a ledger's page, the latest entries first.

use holdoff_ledger::runtime::{Books, Page};
use holdoff_ledger::{Payload, Slot};

use super::super::query::Query;
use super::super::words;
use crate::ledgers::{Node, within};
use crate::problem::Problem;
use crate::show::{diff_lines, goal_text, is_own};

/// The number of entries on a page.
const ON_A_PAGE: u64 = 25;
/// The maximum number of characters shown of a goal or a line.
const MOST_SIGNS: usize = 240;
/// The maximum number of lines shown of an entry's changes.
const MOST_LINES: usize = 8;

/// The reason shown if a daemon's own transaction changed nothing: its compare-and-set failed.
const FASTER: &str = "somebody else was faster";

/// Entries, the latest first.
pub(super) struct History {
    pub(super) rows: Vec<Entry>,
    /// Whether the page shows the latest entries.
    pub(super) is_latest: bool,
    pub(super) latest: String,
    pub(super) older: Option<String>,
    /// The first entry that the node keeps, if it has compacted older ones.
    pub(super) first: Option<String>,
}

/// An entry.
pub(super) struct Entry {
    pub(super) index: String,
    pub(super) goal: String,
    /// Whether the goal is a client's text, and not a description by this page.
    pub(super) is_code: bool,
    pub(super) tx_id: Option<String>,
    pub(super) failed: Option<String>,
    pub(super) diff: Vec<Line>,
    pub(super) left_out: usize,
}

/// A row that the entry removed or added.
pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) sign: &'static str,
    pub(super) text: String,
}

/// Returns the entries before this index, or the latest ones.
pub(super) async fn history(node: &Node, before: Option<u64>) -> Result<History, Problem> {
    let head = node.glance().borrow().head.index.0;
    let end = before.map_or(head, |before| head.min(before.saturating_sub(1)));
    let mut after = end.saturating_sub(ON_A_PAGE);
    let mut first = 1;
    let pages = loop {
        let wanted = usize::try_from(end.saturating_sub(after)).unwrap_or(usize::MAX);
        match within(node.history(Slot(after), wanted)).await? {
            Ok(pages) => break pages,
            Err(kept) if kept.0 <= after.saturating_add(1) || kept.0 > end => {
                first = kept.0;
                break Vec::new();
            }
            Err(kept) => (first, after) = (kept.0, kept.0 - 1),
        }
    };
    let at = |query: Query| query.with("namespace", node.namespace()).link();
    let oldest = pages.first().map(|page| page.index.0);
    let older = oldest.filter(|oldest| *oldest > first);
    Ok(History {
        rows: pages.iter().rev().map(entry).collect(),
        is_latest: before.is_none(),
        latest: at(Query::default()),
        older: older.map(|oldest| at(Query::default().with("before", &oldest.to_string()))),
        first: (first > 1).then(|| words::number(first)),
    })
}

fn entry(page: &Page<Books>) -> Entry {
    let plain = Entry {
        index: words::number(page.index.0),
        goal: String::new(),
        is_code: false,
        tx_id: None,
        failed: None,
        diff: Vec::new(),
        left_out: 0,
    };
    match &page.entry.payload {
        Payload::Barrier => Entry { goal: "A leader begins here.".to_owned(), ..plain },
        Payload::Configuration(voters) => {
            let count = voters.acceptors().len() as u64;
            Entry {
                goal: format!("From here on {}.", words::many(count, "node decides", "nodes decide")),
                ..plain
            }
        }
        Payload::Value(written) => {
            let lines = diff_lines(written);
            let (is_own, failed) = (is_own(written), written.result.as_ref().err());
            Entry {
                goal: if is_own {
                    "A daemon looks after locks or signals.".to_owned()
                } else {
                    cut(&goal_text(&written.goal))
                },
                is_code: !is_own,
                tx_id: (!is_own).then(|| written.tx_id.to_string()),
                failed: failed.map(|why| if is_own { FASTER.to_owned() } else { cut(&why.to_string()) }),
                left_out: lines.len().saturating_sub(MOST_LINES),
                diff: lines.iter().take(MOST_LINES).map(|text| line(text)).collect(),
                ..plain
            }
        }
    }
}

/// Splits a line of a diff into its sign and its text.
fn line(text: &str) -> Line {
    match text.strip_prefix("- ") {
        Some(gone) => Line { class: "before", sign: "−", text: cut(gone) },
        None => Line { class: "after", sign: "+", text: cut(text.strip_prefix("+ ").unwrap_or(text)) },
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_SIGNS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_signs() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"ü".repeat(MOST_SIGNS + 1));
        assert_eq!((long.chars().count(), long.ends_with("ü…")), (MOST_SIGNS + 1, true));
    }
}
