//! State machines that goals change, with the same result on every node.
//!
//! ```text
//! table.rs    rows in order, and their sum     facts.rs      goals over facts, in a language of their own
//! view.rs     the rows as a goal sees them     key_value.rs  commands over values by key
//! overlay.rs  what is not committed yet        value.rs      what stands in rows
//! diff.rs     what a goal changed, as values   coded.rs      the same bytes for the same rows
//! sum.rs      the hash that follows changes    limits.rs     how much of all that
//! pair.rs     two machines in one history
//! ```
//!
//! The leader [executes](Machine::execute) a goal over the committed state and an overlay of uncommitted diffs. The
//! execution returns a diff of values. The other nodes only [apply](Machine::apply) the diff, and all nodes end with
//! the same [hash](Machine::hash).
//!
//! ```
//! use holdoff_ledger::machine::{Facts, Machine};
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

pub(crate) mod coded;
mod diff;
mod facts;
mod failed;
mod key_value;
pub mod limits;
mod overlay;
mod pair;
mod sum;
mod table;
mod value;
mod view;

pub use coded::Coded;
pub use diff::{BadDiff, Change, Diff};
pub use facts::{Answer, Fact, FactRules, Facts, Goal};
pub use failed::{Failed, Misfit};
pub use key_value::{Command, Commands, Key, KeyValue, KeyValueRules, Values};
pub use overlay::Overlay;
pub use pair::{Both, Either, Pair};
pub use sum::StateHash;
pub(crate) use sum::Sum;
pub use table::{BadSnapshot, Ran, Rules, Table};
pub use value::{BadValue, Symbol, Text, Value};
pub use view::View;

/// A state that goals change.
///
/// The result of an execution depends only on the state and the goal. The built-in machines are [`KeyValue`] and
/// [`Facts`]; both are a [`Table`] with [rules](Rules).
pub trait Machine: Default {
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
    fn execute(&self, over: &Self::Overlay, goal: &Self::Goal) -> Result<(Self::Diff, Self::Answer), Failed>;

    /// Adds a diff to the end of the overlay.
    fn lay(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), Misfit>;

    /// Moves the oldest diff of an overlay into the state. Returns false if the overlay is empty.
    fn settle(&mut self, over: &mut Self::Overlay) -> Result<bool, Misfit>;

    /// Applies a committed diff to the state. A diff that does not fit changes nothing.
    fn apply(&mut self, diff: &Self::Diff) -> Result<(), Misfit>;

    /// Returns the hash of the state with the overlay applied.
    fn hash(&self, over: &Self::Overlay) -> StateHash;

    /// Encodes the whole state without uncommitted diffs. Equal states have equal bytes.
    fn snapshot(&self) -> Vec<u8>;

    /// Decodes a state from the bytes of a snapshot.
    fn restore(bytes: &[u8]) -> Result<Self, BadSnapshot>;
}
