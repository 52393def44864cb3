//! Paxos as pure step functions: single-decree Paxos for one slot, and a replicated log under one leader at a time.
//!
//! The crate reads no clock, draws no random numbers and performs no I/O: the caller passes in messages, time and
//! random numbers, and gets back records to store and messages to send.
//!
//! - [`slot`]: one decision among several proposers: [`Preparing`](slot::Preparing) → [`Accepting`](slot::Accepting),
//!   the [`Acceptor`](slot::Acceptor) and the [`Learner`](slot::Learner).
//! - [`log`]: a sequence of decisions under one leader at a time: a [`Node`](log::Node) votes, leads, follows and
//!   catches up.
//!
//! A message that depends on a record is [`Deferred`] back until that record is on disk. The only access to the message is
//! through the function that stores the record.
//!
//! ```
//! use std::convert::Infallible;
//! use holdoff_paxos::{Configuration, Deferred, NodeId, Slot};
//! use holdoff_paxos::slot::{Acceptor, PrepareOutcome, Preparing, PromiseReply, AcceptOutcome};
//!
//! let store = |_| Ok::<_, Infallible>(());
//! let nodes = [1, 2, 3].map(NodeId);
//! let configuration = Configuration::new(nodes)?;
//! let mut acceptors = nodes.map(|node| (node, Acceptor::<&str>::default()));
//!
//! let me = NodeId(7);
//! let mut preparing = Preparing::begin(Slot(1), 1, me, configuration).release(store)?;
//! let free = loop {
//!     let (node, acceptor) = &mut acceptors[preparing.granted()];
//!     let reply = acceptor.prepare(preparing.ballot()).release(|_| Ok::<_, Infallible>(()))?;
//!     match preparing.answer(*node, reply) {
//!         PrepareOutcome::Waiting(still) => preparing = still,
//!         PrepareOutcome::Free(free) => break free,
//!         other => panic!("there is no other proposer: {other:?}"),
//!     }
//! };
//! let mut accepting = free.propose("mine");
//! for (node, acceptor) in &mut acceptors {
//!     let reply = acceptor.accept(accepting.ballot(), *accepting.value());
//!     match accepting.answer(*node, reply.release(|_| Ok::<_, Infallible>(()))?) {
//!         AcceptOutcome::Waiting(still) => accepting = still,
//!         AcceptOutcome::Chosen(chosen) => { assert_eq!(chosen.value, "mine"); break }
//!         AcceptOutcome::Preempted(by) => panic!("there is no other proposer: {by:?}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ballot;
mod configuration;
mod id;
pub mod log;
pub mod slot;

pub use ballot::Ballot;
pub use configuration::{BadConfiguration, Configuration, MAX_ACCEPTORS, Tally};
pub use holdoff_driver::Deferred;
pub use id::{NodeId, Slot};
