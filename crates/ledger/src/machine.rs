//! State machines that goals change, with the same result on every node.
//!
//! ```text
//! table.rs    rows in order, and their sum              facts.rs      goals over facts, in a language of their own
//! overlay.rs  diffs, uncommitted diffs and their view   key_value.rs  commands over values by key
//! sum.rs      the hash of a set of rows                 value.rs      the values in rows
//! pair.rs     two machines in one history               codec.rs      the canonical encoding of rows
//! limits.rs   the limits of goals, values and answers   pages.rs      rows in shared pages
//! ```
//!
//! The leader [executes](StateMachine::execute) a goal over the committed state and an overlay of uncommitted diffs. The
//! execution returns a diff of values. The other nodes only [apply](StateMachine::apply) the diff, and all nodes end with
//! the same [hash](StateMachine::hash).
//!
//! ```
//! use holdoff_ledger::machine::{Facts, StateMachine};
//!
//! let mut facts = Facts::default();
//! let (diff, _) = facts.execute(&Default::default(), &"=> +balance(alice, 30)".parse()?)?;
//! facts.apply(&diff)?;
//!
//! let pay = "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)".parse()?;
//! let (diff, answer) = facts.execute(&Default::default(), &pay)?;
//! assert_eq!(answer.to_string(), "?a = 30");
//! assert_eq!(diff.to_string(), "+ balance(alice, 20)\n- balance(alice, 30)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod codec;
mod facts;
mod key_value;
pub mod limits;
mod overlay;
mod pages;
mod pair;
mod sum;
mod table;
mod value;

pub use codec::Codec;
pub use facts::{Bindings, Fact, FactRules, Facts, Goal};
pub use key_value::{Command, Commands, Key, KeyValue, KeyValueRules, Values};
pub use overlay::{BadDiff, Diff, Overlay, RowChange, TableView};
pub use pair::{Either, Pair, PairOverlay};
pub use sum::StateHash;
pub(crate) use sum::Sum;
pub use table::{BadSnapshot, Execution, Rules, Table};
pub use value::{BadValue, Symbol, Text, Value};

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// A state that goals change.
///
/// The result of an execution depends only on the state and the goal. The built-in machines are [`KeyValue`] and
/// [`Facts`]; both are a [`Table`] with [rules](Rules). A copy of a machine shares its rows, so that it costs little.
pub trait StateMachine: Default + Clone {
    /// The request of a caller.
    type Goal;
    /// The changes of a goal, as values: a node applies them without the goal.
    type Diff;
    /// The answer that the caller receives.
    type Answer;
    /// The uncommitted diffs, in their order. A node that stops leading drops its overlay; the state never contains
    /// these diffs.
    type Overlay: Default;

    /// Returns the changes that a goal would make to the state with the overlay. An execution changes nothing, whether
    /// it succeeds or fails. Its cost depends on the rows that it touches, not on the size of the state.
    fn execute(
        &self,
        over: &Self::Overlay,
        goal: &Self::Goal,
    ) -> Result<(Self::Diff, Self::Answer), GoalError>;

    /// Adds a diff to the end of the overlay.
    fn stage(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), DiffMismatch>;

    /// Moves the oldest diff of an overlay into the state. Returns false if the overlay is empty.
    fn commit_oldest(&mut self, over: &mut Self::Overlay) -> Result<bool, DiffMismatch>;

    /// Applies a committed diff to the state. A diff that does not fit changes nothing.
    fn apply(&mut self, diff: &Self::Diff) -> Result<(), DiffMismatch>;

    /// Returns the hash of the state with the overlay applied.
    fn hash(&self, over: &Self::Overlay) -> StateHash;

    /// Returns the approximate size of the state with the overlay applied, in bytes. Equal states have equal sizes.
    fn bytes(&self, over: &Self::Overlay) -> u64;

    /// Returns the bytes that a diff adds to the state; negative if it removes more than it adds.
    fn growth(diff: &Self::Diff) -> i64;

    /// Encodes the whole state without uncommitted diffs, in chunks that exceed the limit by one row at most. Equal states
    /// have equal chunks.
    fn chunks(&self, limit: usize) -> impl Iterator<Item = Vec<u8>>;

    /// Adds the rows of the next chunk to a state that has the rows of all earlier chunks. After an error the state is
    /// incomplete.
    fn add_chunk(&mut self, chunk: &[u8]) -> Result<(), BadSnapshot>;

    /// Decodes a state from the chunks of its snapshot.
    fn restore<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Result<Self, BadSnapshot> {
        let mut state = Self::default();
        chunks.into_iter().try_for_each(|chunk| state.add_chunk(chunk.as_ref())).map(|()| state)
    }
}

/// The reason for which a goal failed. A failed goal does not change the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum GoalError {
    /// No facts satisfy all conditions.
    #[error("no facts match the conditions")]
    NoMatch,
    /// There is more than one match, and the goal requires exactly one.
    #[error("more than one match: add conditions, or take the first match or `all`")]
    Ambiguous,
    /// A fact to retract does not exist.
    #[error("{0} does not exist and cannot be removed")]
    NotThere(String),
    /// A key does not have the value that the goal expects.
    #[error("`{key}` {found}: read it again and retry")]
    Differs {
        /// The key.
        key: String,
        /// A description of the value that the key has instead.
        found: String,
    },
    /// An operand of a calculation is not an integer.
    #[error("{0} is not an integer: calculations need integers")]
    NotAnInteger(String),
    /// Values of different kinds have no order.
    #[error("{0} and {1} have different types and cannot be ordered")]
    Incomparable(String, String),
    /// A result does not fit into 64 bits, or the divisor is zero.
    #[error("{0} has no result in 64 bits")]
    NoResult(String),
    /// The goal would exceed a limit.
    #[error("the goal exceeds the limit of {most} {what}: split it")]
    TooMuch {
        /// The limited resource.
        what: String,
        /// The limit.
        most: u64,
    },
    /// The state would exceed its limit.
    #[error(
        "the ledger is full: its state may have {most} bytes; delete values, or raise `max_state` in [ledger] on all nodes"
    )]
    Full {
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

impl GoalError {
    pub(crate) fn too_much(what: &str, most: usize) -> Self {
        Self::TooMuch { what: what.to_owned(), most: most as u64 }
    }
}

/// The error for a diff that was computed for another state. The state has not changed. A caller that applies each
/// diff once and in order never receives it. Otherwise the stored or received data is wrong and must be fetched again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the diff is for another state: {0} has another value than the diff expects; nothing was changed")]
pub struct DiffMismatch(pub(super) String);
