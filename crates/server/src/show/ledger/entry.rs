//! The JSON representation of a history's entry.

use holdoff_ledger::machine::{Change, Command, Either, Failed};
use holdoff_ledger::runtime::{AnswerOf, Books, Estate, GoalOf, Member, Page, Wish};
use holdoff_ledger::{Payload, Value};
use serde::Serialize;
use utoipa::ToSchema;

use super::ShownTerm;
use super::value::{ShownAnswer, ShownCommand, ShownResult, is_own_key};

type Written = Value<Estate<Books>>;

/// An entry of the history.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerEntry)]
pub(crate) struct ShownEntry {
    index: u64,
    /// In whose term it was written.
    term: ShownTerm,
    /// `transaction`, `daemon` (about locks or signals, of which values and name are not shown), `members` (one came, changed or
    /// went), `voters` (others decide from here on), or `barrier` (a leader begins here).
    kind: &'static str,
    #[schema(pattern = "^[0-9a-f]{32}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_id: Option<String>,
    /// What was wanted: a goal over facts, or a change of members in words.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    /// Or commands over values.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<Vec<ShownCommand>>,
    /// `committed`, or `failed`: then it has changed nothing.
    status: &'static str,
    #[schema(inline)]
    #[serde(flatten)]
    result: ShownResult,
    /// What it changed, a line for each row that went (`-`) or came (`+`).
    diff: Vec<String>,
    /// Who decides from here on, by their nodes' ids.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    voters: Option<Vec<String>>,
    /// The hash of the entry before it.
    #[schema(pattern = "^[0-9a-f]{64}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_hash: Option<String>,
    /// The hash of what the entries up to this one have made.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state_hash: Option<String>,
}

impl From<&Page<Books>> for ShownEntry {
    fn from(page: &Page<Books>) -> Self {
        let plain = Self {
            index: page.index.0,
            term: page.entry.term.into(),
            kind: "barrier",
            tx_id: None,
            goal: None,
            commands: None,
            status: "committed",
            result: ShownResult::default(),
            diff: Vec::new(),
            voters: None,
            prev_hash: None,
            state_hash: None,
        };
        match &page.entry.payload {
            Payload::Barrier => plain,
            Payload::Configuration(voters) => {
                let ids = voters.acceptors().iter().map(|voter| format!("{:032x}", voter.0));
                Self { kind: "voters", voters: Some(ids.collect()), ..plain }
            }
            Payload::Value(written) => plain.written(written),
        }
    }
}

impl ShownEntry {
    fn written(self, written: &Written) -> Self {
        if is_own(written) {
            return Self {
                kind: "daemon",
                status: if written.result.is_ok() { "committed" } else { "failed" },
                diff: diff_lines(written),
                prev_hash: Some(written.prev_hash.to_string()),
                state_hash: Some(written.state_hash.to_string()),
                ..self
            };
        }
        let (kind, goal, commands) = match &written.goal {
            Either::First(_) => ("members", Some(goal_text(&written.goal)), None),
            Either::Second(Either::First(_)) => ("transaction", Some(goal_text(&written.goal)), None),
            Either::Second(Either::Second(commands)) => {
                ("transaction", None, Some(commands.iter().map(Into::into).collect()))
            }
        };
        Self {
            kind,
            goal,
            commands,
            tx_id: Some(written.tx_id.to_string()),
            status: if written.result.is_ok() { "committed" } else { "failed" },
            result: show_result(&written.result),
            diff: diff_lines(written),
            prev_hash: Some(written.prev_hash.to_string()),
            state_hash: Some(written.state_hash.to_string()),
            ..self
        }
    }
}

fn show_result(result: &Result<AnswerOf<Books>, Failed>) -> ShownResult {
    match result {
        Ok(Either::First(())) => ShownResult::default(),
        Ok(Either::Second(answer)) => ShownResult::answered(answer),
        Err(why) => ShownResult::failed(why),
    }
}

impl From<&<Books as holdoff_ledger::machine::Machine>::Answer> for ShownAnswer {
    fn from(answer: &<Books as holdoff_ledger::machine::Machine>::Answer) -> Self {
        match answer {
            Either::First(answer) => Self::Facts(answer.into()),
            Either::Second(values) => {
                Self::Values(values.iter().map(|value| value.as_ref().map(Into::into)).collect())
            }
        }
    }
}

/// Returns whether a transaction uses the rows that are reserved for daemons. These rows prove the ownership of locks.
/// So does the answer, which any caller that knows the transaction's id could request again.
pub(crate) fn is_own(written: &Written) -> bool {
    let is_of_daemon = |command: &Command| match command {
        Command::Get(key) | Command::Put(key, _) | Command::Delete(key) | Command::Increment(key, _) => {
            is_own_key(key)
        }
        Command::CompareAndSet { key, .. } => is_own_key(key),
        // Only daemons can list rows.
        _ => true,
    };
    match &written.goal {
        Either::Second(Either::Second(commands)) => commands.iter().any(is_of_daemon),
        _ => false,
    }
}

/// Returns the goal as text.
pub(crate) fn goal_text(goal: &GoalOf<Books>) -> String {
    match goal {
        Either::First(Wish::Admit(key, member)) => format!("admit {}", member_text(key, member)),
        Either::First(Wish::Appear(key, life)) => format!("{key} appears with storage {life:016x}"),
        Either::First(Wish::Dismiss(key)) => format!("dismiss {key}"),
        Either::First(Wish::Move(key, address)) => format!("{key} moves to {address}"),
        Either::Second(Either::First(goal)) => goal.to_string(),
        Either::Second(Either::Second(commands)) => {
            let text = |command| serde_json::to_string(&ShownCommand::from(command)).unwrap_or_default();
            commands.iter().map(text).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Returns the lines of an entry's diff.
pub(crate) fn diff_lines(written: &Written) -> Vec<String> {
    match &written.diff {
        Either::First(diff) => rows(diff, member_text),
        Either::Second(Either::First(diff)) => rows(diff, |fact, ()| fact.to_string()),
        Either::Second(Either::Second(diff)) => {
            rows(
                diff,
                |key, value| {
                    if is_own_key(key) { key.to_string() } else { format!("{key} = {value}") }
                },
            )
        }
    }
}

fn rows<'d, K: 'd, V: 'd>(
    changes: impl IntoIterator<Item = &'d Change<K, V>>,
    text: impl Fn(&K, &V) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for Change { key, before, after } in changes {
        lines.extend(before.as_ref().map(|before| format!("- {}", text(key, before))));
        lines.extend(after.as_ref().map(|after| format!("+ {}", text(key, after))));
    }
    lines
}

fn member_text(key: &holdoff_net::PublicKey, member: &Member) -> String {
    let Member { name, address, votes, .. } = member;
    format!("{key} ({name}) at {address}, {}", if *votes { "voting" } else { "without a vote" })
}
