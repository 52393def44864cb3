//! A replicated log of slots under one leader at a time (multi-decree Paxos).
//!
//! A leader holds one promise for all slots from a start slot on: its [`Term`]. A follower appends an entry only after
//! the entry that precedes it in the leader's log (log matching), so that two logs with the same entry are equal up to
//! that entry. Voters elect only a candidate whose log is at least as up to date as their own. Every later leader's log
//! therefore contains all decided entries. `docs/paxos.md` has the proof.

mod catch_up;
mod early;
mod election;
mod entry;
mod following;
mod handing;
mod join;
mod leading;
mod learning;
mod message;
#[cfg(test)]
mod model;
mod node;
mod options;
mod progress;
mod promises;
#[cfg(test)]
mod simulation;
mod step;
mod store;
mod term;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Payload, Snapshot};
pub use join::join;
pub use message::{Append, Candidacy, Message};
pub use node::{Input, Node, Output, Refusal};
pub use options::Options;
pub use promises::Promises;
pub use step::Step;
pub use store::{Record, Store};
pub use term::{Mark, Term};
