//! A replicated log of slots under one leader at a time (multi-decree Paxos).
//!
//! A leader holds one promise for all slots from a start slot on: its [`Term`]. A follower appends an entry only after
//! the entry that precedes it in the leader's log (log matching), so that two logs with the same entry are equal up to
//! that entry. Voters elect only a candidate whose log is at least as up to date as their own. Every later leader's log
//! therefore contains all decided entries. `docs/paxos.md` has the proof.

mod election;
mod entry;
#[cfg(test)]
mod faults;
mod following;
mod leading;
mod learning;
mod message;
#[cfg(test)]
mod model;
mod node;
mod progress;
#[cfg(test)]
mod simulation;
mod store;
#[cfg(test)]
mod tests;
mod transfer;

pub use entry::{Entry, EntryPayload, EntrySize, LogId, Snapshot, Term};
pub use message::{Append, Message, VoteRequest, coalesce_appends};
pub use node::{Input, Node, Options, Output, Rejection};
pub use store::{Promises, Record, Store};
