//! Real processes on real stores, under every fault at once.
//!
//! They acquire one of a few locks, write through a fence, hold, write again and let go. Postgres crashes and cuts
//! connections off; a ledger's leader is killed, and the processes are its nodes; processes are killed, and paused for longer than their leases. No token is granted twice, nobody is
//! granted a lock before the holder before it was told that it is lost, stale writes are refused, and when the faults are
//! over everybody gets its turn.
//!
//! A run prints its seed; `HOLDOFF_CHAOS_SEED` draws the same faults again. What the operating system makes of them
//! differs, so a failure may need a few runs to come back. `HOLDOFF_CHAOS_SECONDS` makes a longer haul of it.

mod check;
mod faults;
mod fleet;
mod resource;
mod run;
mod witness;
mod worker;

use std::sync::Mutex;

use holdoff_testbed::Postgres;

/// One engine at a time: two at once would measure each other.
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

/// The name by which this binary runs `worker_process`.
fn worker_name() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::worker_process")
}
