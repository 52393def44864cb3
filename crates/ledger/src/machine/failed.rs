//! Why a goal came to nothing.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Why a goal failed. Whatever it is, the state is as it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The conditions do not hold together.
    #[error("nothing matches")]
    NoMatch,
    /// There is more than one match, and the goal demands one.
    #[error("more than one match: say more, or take the first or all of them")]
    Ambiguous,
    /// A fact that is to be retracted is not there.
    #[error("{0} is not there to be retracted")]
    NotThere(String),
    /// A key does not have the value that the goal expects.
    #[error("`{key}` {found}: read it again, and decide anew")]
    Differs {
        /// The key.
        key: String,
        /// What there is instead, in words.
        found: String,
    },
    /// Only integers can be calculated with.
    #[error("{0} is no integer: only integers can be calculated with")]
    NotAnInteger(String),
    /// Values of two kinds have no order.
    #[error("{0} and {1} are of different kinds: neither is less")]
    Incomparable(String, String),
    /// A result does not fit 64 bits, or something is divided by zero.
    #[error("{0} has no result in 64 bits")]
    NoResult(String),
    /// It would exceed a limit.
    #[error("it takes more than {most} {what}: ask for less at once")]
    TooMuch {
        /// What there is too much of.
        what: String,
        /// How much is allowed.
        most: u64,
    },
}

/// A reason is for people, and stands in the history for ever: more of a value than this is cut off.
const LONGEST: usize = 100;

/// A value as reasons show it.
pub(super) fn shown(value: &impl Display) -> String {
    let shown = value.to_string();
    match shown.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}

impl Failed {
    pub(crate) fn too_much(what: &str, most: usize) -> Self {
        Self::TooMuch { what: what.to_owned(), most: most as u64 }
    }
}

/// A diff was made for another state than this one, which is as it was. Whoever applies diffs in their order, each once,
/// never sees it: what is stored or was received is not what it should be, so fetch it again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the diff is for another state: {0} is not as it should be before; nothing was changed")]
pub struct Misfit(pub(super) String);
