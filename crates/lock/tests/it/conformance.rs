//! The conformance suite of every store: memory, a SQLite file, a real Postgres, the stand-in for Kubernetes, a ledger
//! of three nodes, and a real cluster if `HOLDOFF_TEST_KUBECONFIG` names one.
//!
//! The tests use the public API, so they show what a user can observe. `test_store` provides the stores, and a connection
//! that can be cut; `crate::node` is a separate process; every other file is one subject.

mod test_store;

mod acquire;
mod inspect;
mod leases;
mod ledger;
mod once;
mod tokens;
mod withdraw;
