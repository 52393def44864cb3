//! The servers that tests and benchmarks run against.
//!
//! [`Postgres`] is a temporary cluster made from the system's own server binaries. It needs no setup, also as
//! root, and it ends with the process that started it, even if that process is killed. With the feature
//! `kubernetes`, [`kubernetes`] simulates an API server, and documents the real version that it was compared
//! with. [`fuzz`] creates invalid inputs.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "test support: a test that cannot get its server fails with the reason"
)]

mod account;
mod depth;
pub mod fault;
pub mod fuzz;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod pgbouncer;
mod postgres;
mod seeds;
mod system;

/// The environment variable that names a real Kubernetes cluster to test against as well.
pub const KUBECONFIG_VARIABLE: &str = "HOLDOFF_TEST_KUBECONFIG";

pub use depth::{CONDITION_TIMEOUT, DEEP_VARIABLE, SKIPPED, is_deep, scaled, skip};
pub use pgbouncer::PgBouncer;
pub use postgres::{Options, Postgres, SHARED_VARIABLE};
pub use seeds::{SEED_VARIABLE, SEEDS_VARIABLE, Seeds};
pub use system::{BINARIES_VARIABLE, free_port, libfaketime, postgres_binaries};
