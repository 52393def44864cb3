//! Nodes as they run: a disk for each ledger, links to the other nodes, and one task that owns the core.
//!
//! ```text
//! host.rs    all ledgers of one process    node.rs      one of them, for whoever uses it
//! door.rs    what comes in from others     settings.rs  how all that runs
//! task.rs    the one task that owns a core writer.rs    the thread that stores
//! store.rs   what is stored                roster.rs    who belongs to a ledger: a table in its history
//! lines.rs   links, and what waits there   wire.rs      what is said there
//! book.rs    where everybody is            identity.rs  who is who, and what nodes sign
//! joining.rs becoming a member             status.rs    how it is doing, for people
//! waiting.rs between two tries
//! ```
//!
//! # Invariants
//!
//! - Nothing leaves before what it depends on is on disk: the core holds it back, the writer lets it go.
//! - A node that could not store stops, and has told nobody.
//! - A message counts by the key that its link has proved, and the life of that key's storage.

mod book;
mod clock;
mod door;
mod error;
mod host;
mod identity;
mod joining;
mod lines;
mod node;
mod roster;
mod settings;
mod status;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod waiting;
mod wire;
mod writer;

pub use error::Error;
pub use host::{Host, found, join};
pub use identity::{BadLedgerId, LedgerId, node_id};
pub use joining::{BadContact, Contact};
pub use node::{Node, Page, Subscription};
pub use roster::{MAX_MEMBERS, MAX_NAME_BYTES, Member, Roster, RosterRules, Wish};
pub use settings::{Settings, Written};
pub use status::{Counts, Glance, MemberStatus, Role, Status};
pub use store::About;
pub use wire::Head;

use crate::entry::Part;
use crate::machine::{Facts, KeyValue, Machine, Pair};

/// Facts and values in one ledger.
pub type Books = Pair<Facts, KeyValue>;

/// What a node's history is of: who belongs to it, and what it is for.
pub type Estate<M> = Pair<Roster, M>;

/// What somebody can want of such a ledger.
pub type GoalOf<M> = <Estate<M> as Machine>::Goal;
/// What it answers.
pub type AnswerOf<M> = <Estate<M> as Machine>::Answer;

/// A machine that a node can run.
pub trait Housed:
    Machine<Goal: Part + Send, Diff: Part + Default + Send, Answer: Part + Send, Overlay: Send> + Send + 'static
{
}

impl<M> Housed for M where
    M: Machine<Goal: Part + Send, Diff: Part + Default + Send, Answer: Part + Send, Overlay: Send>
        + Send
        + 'static
{
}
