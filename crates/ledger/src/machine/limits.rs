//! How much a goal may say, search, change and answer.
//!
//! Only who leads executes goals: where limits differ between two nodes, a goal may fail on one that would not have failed
//! on the other, and no state differs. The sizes of values are everybody's: what exceeds them is not read at all.

/// The bytes of a goal's text.
pub const GOAL_BYTES: usize = 64 * 1024;
/// The conditions of a goal.
pub const CONDITIONS: usize = 32;
/// The effects of a goal.
pub const EFFECTS: usize = 64;
/// The commands of a key-value goal.
pub const COMMANDS: usize = 64;
/// The rows that one command lists.
pub const LISTED: usize = 1000;
/// The bytes of a list, whose last row may exceed them if it is the only one.
pub const LISTED_BYTES: usize = 256 * 1024;
/// The arguments of a fact.
pub const ARGUMENTS: usize = 16;
/// The different variables of a goal.
pub const VARIABLES: usize = 64;
/// How deep calculations nest.
pub const DEPTH: usize = 32;
/// The bytes of a symbol, which are names of facts and variables, too.
pub const SYMBOL_BYTES: usize = 128;
/// The bytes of a text.
pub const TEXT_BYTES: usize = 16 * 1024;
/// The bytes of a key.
pub const KEY_BYTES: usize = 1024;

/// The steps of a search: a fact looked at, a comparison, a calculation, an effect are one each.
pub const STEPS: usize = 100_000;
/// The bytes of a long value that are copied in one step.
pub const STEP_BYTES: usize = 64;
/// The matches that `all` takes.
pub const MATCHES: usize = 10_000;
/// The bytes of an answer's values.
pub const ANSWER_BYTES: usize = 1024 * 1024;
/// The bytes of the rows that a goal changes.
pub const DIFF_BYTES: usize = 1024 * 1024;
