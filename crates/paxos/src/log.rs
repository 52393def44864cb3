//! A log of slots under one leader at a time.
//!
//! A leader holds one promise for all slots from a start on: its [`Term`]. A voter takes an entry only on top of the
//! one that its leader has before it, so that equal entries stand on equal logs. What is decided is in the log of every
//! later leader: whoever votes has seen to that. See `docs/paxos.md` for why.

mod catch_up;
mod election;
mod entry;
mod following;
mod leading;
mod learning;
mod message;
#[cfg(test)]
mod model;
mod node;
mod options;
mod progress;
#[cfg(test)]
mod simulation;
mod store;
mod term;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Payload, Snapshot};
pub use message::{Append, Candidacy, Message};
pub use node::{Input, Node, Output, Refusal, Step};
pub use options::Options;
pub use store::{Record, Store};
pub use term::{Mark, Term};
