//! The conformance suite of the stores: SQLite in a file and in memory, and a real Postgres.
//!
//! Tests use the public API, so that they check the behaviour that a user sees. `place` creates the stores; every
//! other file covers one subject.

mod place;

mod claims;
mod crowds;
mod elsewhere;
mod failures;
mod graphs;
mod history;
mod interference;
mod limits;
mod lists;
mod locks;
mod looks;
mod migrations;
mod names;
mod notifications;
mod operators;
mod pulse;
mod races;
mod rescue;
mod signals;
mod submit;
mod tasks;
mod together;
mod versions;
mod workers;
