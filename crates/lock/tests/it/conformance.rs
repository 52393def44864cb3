//! The conformance suite of every store: memory, a SQLite file, a real Postgres, the stand-in for Kubernetes, a ledger
//! of three nodes, and a real cluster if `HOLDOFF_TEST_KUBECONFIG` names one.
//!
//! The tests use the public API, so they show what a user can observe. `place` provides the stores, `proxy` is a
//! connection that can be cut, `crate::node` is a separate process; every other file is one subject.

mod place;
mod proxy;

mod answers;
mod clocks;
mod crowds;
mod doors;
mod keys;
mod leaving;
mod ledgers;
mod lines;
mod losing;
mod making_once;
mod operators;
mod pauses;
mod restores;
mod tokens;
