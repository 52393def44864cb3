//! States that goals change, the same way everywhere.
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
//! Whoever leads [executes](Machine::execute) a goal over what is committed and, in an overlay, what is not yet. The goal
//! becomes a diff of values; everybody else only [applies](Machine::apply) it, and ends with the same
//! [hash](Machine::hash).
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
/// Executing may depend on nothing but the state and the goal. Built in are [`KeyValue`] and [`Facts`], which are both a
/// [`Table`] with [rules](Rules).
pub trait Machine: Default {
    /// What somebody wants.
    type Goal;
    /// What it changes: values, which need no goal to be applied.
    type Diff;
    /// What whoever wanted it gets to know.
    type Answer;
    /// Diffs that are not committed yet, in their order. Who leads no longer drops it: the state never saw them.
    type Overlay: Default;

    /// What a goal would change, here and now. It changes nothing itself, whether it fails or not, and costs what it
    /// touches, however large the state is.
    fn execute(&self, over: &Self::Overlay, goal: &Self::Goal) -> Result<(Self::Diff, Self::Answer), Failed>;

    /// Puts a diff on top of those that are not committed yet.
    fn lay(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), Misfit>;

    /// Moves the oldest diff of an overlay into the state. False if there is none.
    fn settle(&mut self, over: &mut Self::Overlay) -> Result<bool, Misfit>;

    /// Changes the state by a diff that is committed. One that does not fit changes nothing.
    fn apply(&mut self, diff: &Self::Diff) -> Result<(), Misfit>;

    /// The hash of the state with the overlay on top.
    fn hash(&self, over: &Self::Overlay) -> StateHash;

    /// The whole state without what is not committed: the same bytes for the same state.
    fn snapshot(&self) -> Vec<u8>;

    /// The state of these bytes.
    fn restore(bytes: &[u8]) -> Result<Self, BadSnapshot>;
}
