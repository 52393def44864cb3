//! The reasons for which a goal fails.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// The reason for which a goal failed. A failed goal does not change the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// No facts satisfy all conditions.
    #[error("nothing matches")]
    NoMatch,
    /// There is more than one match, and the goal requires exactly one.
    #[error("more than one match: say more, or take the first or all of them")]
    Ambiguous,
    /// A fact to retract does not exist.
    #[error("{0} is not there to be retracted")]
    NotThere(String),
    /// A key does not have the value that the goal expects.
    #[error("`{key}` {found}: read it again, and decide anew")]
    Differs {
        /// The key.
        key: String,
        /// A description of the value that the key has instead.
        found: String,
    },
    /// An operand of a calculation is not an integer.
    #[error("{0} is no integer: only integers can be calculated with")]
    NotAnInteger(String),
    /// Values of different kinds have no order.
    #[error("{0} and {1} are of different kinds: neither is less")]
    Incomparable(String, String),
    /// A result does not fit into 64 bits, or the divisor is zero.
    #[error("{0} has no result in 64 bits")]
    NoResult(String),
    /// The goal would exceed a limit.
    #[error("it takes more than {most} {what}: ask for less at once")]
    TooMuch {
        /// The limited resource.
        what: String,
        /// The limit.
        most: u64,
    },
}

/// The maximum length of a value in a reason, in characters. Reasons are for people and stay in the history
/// permanently.
const LONGEST: usize = 100;

/// Formats a value for a reason, cut to `LONGEST` characters.
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

/// The error for a diff that was computed for another state. The state has not changed. A caller that applies each
/// diff once and in order never receives it. Otherwise the stored or received data is wrong and must be fetched again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the diff is for another state: {0} is not as it should be before; nothing was changed")]
pub struct Misfit(pub(super) String);
