//! Limits on the text, the search, the changes and the answer of a goal.
//!
//! Only the leader executes goals. If limits differ between two nodes, a goal may fail on one node and succeed on the
//! other, but no state differs. The size limits of values apply on all nodes: a node does not decode a larger value.

/// The maximum size of a goal's text, in bytes.
pub const GOAL_BYTES: usize = 64 * 1024;
/// The maximum number of conditions of a goal.
pub const CONDITIONS: usize = 32;
/// The maximum number of effects of a goal.
pub const EFFECTS: usize = 64;
/// The maximum number of commands of a key-value goal.
pub const COMMANDS: usize = 64;
/// The maximum number of rows that one command lists.
pub const LISTED: usize = 1000;
/// The maximum size of a list, in bytes. A single row may exceed it if it is the only one.
pub const LISTED_BYTES: usize = 256 * 1024;
/// The maximum number of arguments of a fact.
pub const ARGUMENTS: usize = 16;
/// The maximum number of different variables of a goal.
pub const VARIABLES: usize = 64;
/// The maximum nesting depth of calculations.
pub const DEPTH: usize = 32;
/// The maximum size of a symbol, in bytes. Names of facts and variables are symbols, too.
pub const SYMBOL_BYTES: usize = 128;
/// The maximum size of a text, in bytes.
pub const TEXT_BYTES: usize = 16 * 1024;
/// The maximum size of a key, in bytes.
pub const KEY_BYTES: usize = 1024;

/// The maximum number of steps of a search. Each examined fact, comparison, calculation and effect costs one step.
pub const STEPS: usize = 100_000;
/// The bytes of a long value that one step copies.
pub const STEP_BYTES: usize = 64;
/// The maximum number of matches that `all` takes.
pub const MATCHES: usize = 10_000;
/// The maximum size of an answer's values, in bytes.
pub const ANSWER_BYTES: usize = 1024 * 1024;
/// The maximum size of the rows that a goal changes, in bytes.
pub const DIFF_BYTES: usize = 1024 * 1024;
