//! The real things that tests and benchmarks run against.
//!
//! [`Postgres`] is a throw-away cluster made from the system's own server binaries: nothing to set up, also
//! for root, and gone when the process that asked for it is, however that one ends. With the feature `kubernetes`,
//! [`kubernetes`] stands in for an API server, and says what it was held against. [`fuzz`] makes inputs that nobody would.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "test support: whoever asks for a server and cannot have one should fail, and say why"
)]

mod account;
mod binaries;
mod depth;
mod faketime;
pub mod fuzz;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod options;
mod port;
mod postgres;
mod watcher;

/// The variable that names a real Kubernetes cluster to test against as well.
pub const KUBECONFIG_VARIABLE: &str = "HOLDOFF_TEST_KUBECONFIG";

pub use binaries::{BINARIES_VARIABLE, postgres_binaries};
pub use depth::{CONDITION_TIMEOUT, DEEP_VARIABLE, SKIPPED, is_deep, scaled, skip};
pub use faketime::libfaketime;
pub use options::Options;
pub use port::free as free_port;
pub use postgres::{Postgres, SHARED_VARIABLE};
