//! Real processes on real stores, under all faults at once.
//!
//! Each process acquires one of a few locks, writes through a fence, holds the lock, writes again, and releases it.
//! Postgres crashes and drops connections. A ledger's leader is killed; there the processes are its nodes. Processes
//! are killed, and paused for longer than their leases. The checks: no token is granted twice; the store grants a lock
//! only after the previous holder was notified of its loss; stale writes are rejected; after the faults, every process
//! gets its turn.
//!
//! A run prints its seed; `HOLDOFF_CHAOS_SEED` draws the same faults again. The scheduling of the operating system
//! differs, so a failure may take a few runs to reproduce. `HOLDOFF_CHAOS_SECONDS` makes the run longer.

mod check;
mod faults;
mod fleet;
mod resource;
mod run;
mod witness;
mod worker;

use std::sync::Mutex;

use holdoff_testbed::Postgres;

/// Serialises the engines: two concurrent runs would disturb each other's timing.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn on_postgres() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Postgres::start();
    let (store, resource) = (server.create_database("chaos"), server.create_database("resource"));
    run::run(run::Ground { store, resource, server: Some(server), engine: "postgres", seconds: 12 });
}

#[test]
fn on_sqlite() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let (store, resource) = (url("store.db"), url("resource.db"));
    run::run(run::Ground { store, resource, server: None, engine: "sqlite", seconds: 12 });
}

#[test]
fn on_a_ledger() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    // Each change of leader takes a while.
    run::run(run::Ground { store: String::new(), resource, server: None, engine: "a_ledger", seconds: 30 });
}

#[test]
#[ignore = "the others run it, as a process of its own"]
fn worker_process() {
    worker::run_if_asked();
}

/// Returns the name by which this binary runs `worker_process`.
fn worker_name() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::worker_process")
}
