//! The conformance suite of the stores: SQLite in a file and in memory, and a real Postgres.
//!
//! Tests use the public API, so that they check the behaviour that a user sees. `test_store` creates the stores; every
//! other file covers one subject.

pub(crate) mod test_store;

mod claims;
mod contention;
mod failures;
mod graphs;
mod hangs;
mod history;
mod limits;
mod lists;
mod locks;
mod migrations;
mod notifications;
mod operators;
mod other_nodes;
mod races;
mod registrations;
mod rescue;
mod signals;
mod stats;
mod submit;
mod versions;
mod workers;
