//! The daemon's responses about a ledger.

use std::fmt;
use std::io::{self, Write};

use holdoff_ledger::machine;
use serde::Deserialize;
use serde_json::Value;

/// The status of a daemon's node. Before the node has joined, most fields are unknown.
#[derive(Deserialize)]
pub(super) struct Status {
    pub(super) namespace: String,
    pub(super) contact: String,
    pub(super) role: String,
    #[serde(flatten)]
    pub(super) joined: Option<Joined>,
    pub(super) leader: Option<Leader>,
    pub(super) members: Vec<Member>,
}

#[derive(Deserialize)]
pub(super) struct Joined {
    pub(super) ledger: String,
    pub(super) term: Term,
    pub(super) tenure_ms: u64,
    pub(super) index: u64,
    pub(super) hash: String,
    pub(super) state_hash: String,
    pub(super) certified: u64,
    pub(super) pending: u64,
}

#[derive(Deserialize)]
pub(super) struct Leader {
    pub(super) key: String,
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Term {
    pub(super) start: u64,
    pub(super) attempt: u64,
}

#[derive(Deserialize)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) votes: bool,
    pub(super) shall_vote: bool,
    pub(super) here: bool,
    pub(super) index: Option<u64>,
    pub(super) lag: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Entry {
    pub(super) index: u64,
    pub(super) kind: String,
    pub(super) tx_id: Option<String>,
    pub(super) goal: Option<String>,
    pub(super) commands: Option<Vec<Value>>,
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) diff: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Ended {
    pub(super) tx_id: String,
    pub(super) outcome: String,
    pub(super) index: u64,
    pub(super) result: Option<Answer>,
    pub(super) why: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Verified {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) certified: u64,
    pub(super) broken: Option<String>,
}

/// The result of a goal or of commands.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    /// The values of a goal's variables, for each match.
    Facts { variables: Vec<String>, matches: Vec<Vec<Found>> },
    /// The value that each command returned.
    Values(Vec<Option<Found>>),
}

/// A value.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Found {
    Integer(i64),
    Text(String),
    Symbol { symbol: String },
}

impl Answer {
    /// Returns the value of the first command.
    pub(super) fn into_value(self) -> Option<Found> {
        match self {
            Self::Facts { .. } => None,
            Self::Values(values) => values.into_iter().next().flatten(),
        }
    }

    /// Prints a line for each match or for each command.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Facts { variables, .. } if variables.is_empty() => Ok(()),
            Self::Facts { variables, matches } => matches.iter().try_for_each(|values| {
                let pairs = variables.iter().zip(values).map(|(name, value)| format!("?{name} = {value}"));
                writeln!(out, "{}", pairs.collect::<Vec<_>>().join(", "))
            }),
            Self::Values(values) => values.iter().try_for_each(|value| match value {
                Some(value) => writeln!(out, "{value}"),
                None => writeln!(out, "nothing"),
            }),
        }
    }
}

impl Found {
    /// Returns the bare value. A text has no quotes.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

/// Formats the value in the syntax of goals.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Symbol { symbol } => f.write_str(symbol),
            Self::Text(text) => match machine::Value::text(text.as_str()) {
                Ok(value) => write!(f, "{value}"),
                Err(_) => write!(f, "{text:?}"),
            },
        }
    }
}
