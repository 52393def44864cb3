//! A log of slots under one leader at a time.
//!
//! A leader holds one promise for all slots from a start on: its [`Term`]. A voter takes an entry only on top of the
//! one that its leader has before it, so that equal entries stand on equal logs. What is decided is in the log of every
//! later leader: whoever votes has seen to that. See `docs/paxos.md` for why.

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
