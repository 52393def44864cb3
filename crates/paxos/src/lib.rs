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
//! A message that depends on a record is [`Held`] back until that record is on disk. The only access to the message is
//! through the function that stores the record.
//!
//! ```
//! use std::convert::Infallible;
//! use holdoff_paxos::{Configuration, Held, NodeId, Slot};
//! use holdoff_paxos::slot::{Acceptor, Prepared, Preparing, PromiseReply, Voted};
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
//!         Prepared::Waiting(still) => preparing = still,
//!         Prepared::Free(free) => break free,
//!         other => panic!("nobody else proposes: {other:?}"),
//!     }
//! };
//! let mut accepting = free.propose("mine");
//! for (node, acceptor) in &mut acceptors {
//!     let reply = acceptor.accept(accepting.ballot(), *accepting.value());
//!     match accepting.answer(*node, reply.release(|_| Ok::<_, Infallible>(()))?) {
//!         Voted::Waiting(still) => accepting = still,
//!         Voted::Chosen(chosen) => { assert_eq!(chosen.value, "mine"); break }
//!         Voted::Preempted(by) => panic!("nobody else proposes: {by:?}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ballot;
mod configuration;
#[cfg(any(test, feature = "flaws"))]
pub mod flaw;
mod held;
mod id;
pub mod log;
pub mod slot;

pub use ballot::Ballot;
pub use configuration::{BadConfiguration, Configuration, MAX_ACCEPTORS, Tally};
pub use held::Held;
pub use id::{NodeId, Slot};

/// Returns whether a known defect is injected. Outside of the tests that inject defects the answer is always `false`.
///
/// The defect is a variant of the enum `flaw::Flaw` of the calling crate. That enum exists in the crate's tests and
/// with its feature `flaws`.
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "the defects are those of whoever asks")]
macro_rules! planted {
    ($flaw:ident) => {{
        #[cfg(any(test, feature = "flaws"))]
        let is_planted = $crate::flaw::Plant::is_planted(crate::flaw::Flaw::$flaw);
        #[cfg(not(any(test, feature = "flaws")))]
        let is_planted = false;
        is_planted
    }};
}
