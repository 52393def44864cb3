//! What every store must do, asked of each of them: memory, a SQLite file, a real Postgres, the stand-in for
//! Kubernetes, a ledger of three nodes, and a real cluster if `HOLDOFF_TEST_KUBECONFIG` names one.
//!
//! Tests use the public API, so that they say what a user would notice. `place` knows the stores, `proxy` is a line
//! that can be cut, `crate::node` a process of its own; every other file is one subject.

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
