//! The acceptor service: stores the promises and votes of many councils on one disk.
//!
//! ```text
//! service.rs    the network service                 writer.rs    the single writer: one commit for many requests
//! core.rs       the acceptors of all councils       store.rs     the records on disk
//! stats.rs      the counters
//! inspector.rs  the view for operators              allowed.rs   the list of permitted keys
//! settings.rs   the section `[acceptor]`, limits
//! ```
//!
//! [`CouncilAcceptor`](crate::CouncilAcceptor) implements the part of one acceptor in one council. It is pure.

mod allowed;
mod core;
mod inspector;
mod service;
mod settings;
mod stats;
mod store;
mod writer;

pub use crate::wire::{LinkMessage, LinkPush, LinkReply, LinkRequest, ROLE};
pub use allowed::{Allowed, BadKeyList};
pub use core::{AcceptorAnswer, AcceptorCore, AcceptorInput};
pub use inspector::{
    AcceptorInspector, BadCouncilCursor, ConnectedClient, CouncilCursor, CouncilPage, CouncilQuery,
    CouncilSummary, CouncilUsage, Sort,
};
pub use service::{AcceptorService, StartError};
pub use settings::{AcceptorLimits, Settings};
pub use stats::{AcceptorStats, RecentActivity};
pub use store::{Store, StoreError};
pub use writer::{AcceptorStopReason, AcceptorStopped, Watcher, Writer};
