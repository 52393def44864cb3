//! Real worker processes on real stores, under every fault at once.
//!
//! Workers are killed, stopped for longer than their leases, shut down and started again, with clocks that are an
//! hour wrong. In addition, Postgres loses connections and crashes. After the faults every step must be done: no step
//! is lost, no result of a stale worker is accepted, and all counters in the store are consistent.
//!
//! A run prints its seed; `HOLDOFF_SEED` draws the same steps and the same faults again. The operating system
//! schedules them differently, so a failure may need a few runs to recur. `HOLDOFF_CHAOS_STEPS` and
//! `HOLDOFF_CHAOS_SECONDS` make a run longer; `HOLDOFF_CHAOS_LOG` names a file that keeps the workers' log.

mod check;
mod counts;
mod effects;
mod faults;
mod fleet;
mod inbox;
mod plan;
mod records;
mod run;
mod server;
mod worker;

use std::sync::Mutex;

use holdoff_testbed::{Options, Postgres};

/// One engine runs at a time, because two at once would influence each other's timing.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn on_postgres() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let settings = [("timezone", "Asia/Kathmandu"), ("autovacuum_naptime", "1s")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    run::run("postgres", || {
        let server = Postgres::start_with(&Options { settings: settings.clone(), ..Options::default() });
        let store = server.create_database("chaos");
        run::ChaosSetup { effects: store.clone(), store, server: Some(server) }
    });
}

#[test]
fn on_sqlite() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (folder, mut runs) = (tempfile::tempdir().unwrap(), 0);
    run::run("sqlite", || {
        runs += 1;
        let url =
            |name: &str| format!("sqlite:{}", folder.path().join(format!("{runs}-{name}.db")).display());
        run::ChaosSetup { store: url("store"), effects: url("effects"), server: None }
    });
}

#[test]
#[ignore = "the others run it, as a process of its own"]
fn worker_process() {
    worker::run_if_asked();
}

/// The test name with which this binary runs `worker_process`.
fn worker_name() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::worker_process")
}
