//! Real processes on real stores, under all faults at once.
//!
//! Each process acquires one of a few locks, writes through a fence, holds the lock, writes again, and releases it.
//! Postgres crashes and drops connections. A ledger's leader is killed; there the processes are its nodes. Processes
//! are killed, and paused for longer than their leases. The checks: no token is granted twice; the store grants a lock
//! only after the previous holder was notified of its loss; stale writes are rejected; after the faults, every process
//! gets its turn.
//!
//! A run prints its seed; `HOLDOFF_SEED` draws the same faults again. The scheduling of the operating system
//! differs, so a failure may take a few runs to reproduce. `HOLDOFF_CHAOS_SECONDS` makes the run longer.

mod check;
mod faults;
pub(crate) mod resource;
mod worker;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use holdoff_lock::Locks;
use holdoff_testbed::{CONDITION_TIMEOUT, Postgres};
use tokio::time::Instant;

use crate::node::Cluster;
use check::Notes;
use faults::{Fleet, SIZE};
use resource::{LedgerWitness, Resource};

/// Serialises the engines: two concurrent runs would disturb each other's timing.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn on_postgres() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Postgres::start();
    let (store, resource) = (server.create_database("chaos"), server.create_database("resource"));
    run(ChaosSetup { store, resource, server: Some(server), engine: "postgres", seconds: 12 });
}

#[test]
fn on_sqlite() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let (store, resource) = (url("store.db"), url("resource.db"));
    run(ChaosSetup { store, resource, server: None, engine: "sqlite", seconds: 12 });
}

#[test]
fn on_a_ledger() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    // Each change of leader takes a while.
    run(ChaosSetup { store: String::new(), resource, server: None, engine: "a_ledger", seconds: 30 });
}

#[test]
#[ignore = "other tests run it as a separate process"]
fn worker_process() {
    worker::run_if_asked();
}

/// Returns the name by which this binary runs `worker_process`.
fn worker_name() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::worker_process")
}

/// The environment of a run.
struct ChaosSetup {
    store: String,
    resource: String,
    server: Option<Postgres>,
    engine: &'static str,
    /// The default duration of the faults.
    seconds: u64,
}

/// The maximum number of such periods. The faults go on until the notes show everything that the run must show.
const MAX_ROUNDS: usize = 6;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?}")))
}

fn run(setup: ChaosSetup) {
    let seed = number("HOLDOFF_SEED").unwrap_or_else(|| Rng::new().u64(..));
    let faulty = Duration::from_secs(number("HOLDOFF_CHAOS_SECONDS").unwrap_or(setup.seconds));
    let engine = setup.engine;
    println!(
        "chaos on {engine}: HOLDOFF_SEED={seed} HOLDOFF_CHAOS_SECONDS={} cargo test -p holdoff-lock \
         --all-features --test it chaos::on_{engine} -- --nocapture",
        faulty.as_secs()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run_chaos(setup, seed, faulty));
}

async fn run_chaos(setup: ChaosSetup, seed: u64, faulty: Duration) {
    let ChaosSetup { store, resource: protected, server, engine, .. } = setup;
    let logs = tempfile::tempdir().unwrap();
    let resource = Arc::new(Resource::open(&protected).await);
    resource.prepare().await;
    let cluster = if engine == "a_ledger" { Some(Arc::new(Cluster::new(2).await)) } else { None };
    let witness = cluster.as_ref().map(|cluster| LedgerWitness::new(cluster.at(faults::SPARED)));
    let stores = if let Some(cluster) = &cluster {
        invitations(cluster).await
    } else {
        drop(Locks::open(&store).await.unwrap());
        resource::record_grants(&store).await;
        vec![store.clone(); SIZE]
    };
    let fleet = Fleet::start(stores, protected, logs.path().to_owned(), seed);
    let fleet = Arc::new(Mutex::new(fleet));
    // Kept until the end of the run: dropping it stops the server.
    let server = server.map(Arc::new);
    let injector = FaultInjector {
        fleet,
        resource: Arc::clone(&resource),
        server: server.clone(),
        store,
        cluster,
        crashes: Mutex::default(),
    };
    let mut rng = Rng::with_seed(seed);
    let mut injected = injector.inject(&mut rng, faulty).await;
    for _ in 1..MAX_ROUNDS {
        // A busy machine does little in the same time.
        if injected.iter().all(|(count, _)| *count > 0) && Notes::show_all(logs.path()) {
            break;
        }
        let again = injector.inject(&mut rng, faulty).await;
        injected.iter_mut().zip(again).for_each(|((count, _), (more, _))| *count += more);
    }
    let FaultInjector { fleet, store, crashes, .. } = injector;
    let crashes = crashes.into_inner().unwrap();
    let healed = Instant::now();
    let mut fleet = Arc::into_inner(fleet).expect("all faults have ended").into_inner().unwrap();
    fleet.finish(CONDITION_TIMEOUT).await;
    println!("  every process had its turn {:.1?} after the faults", healed.elapsed());
    let notes = Notes::read(logs.path());
    let grants = match &witness {
        Some(witness) => witness.grants().await,
        None => resource::grants(&store).await,
    };
    injected.extend(check::check(server.is_some(), &notes, &grants, &crashes, &resource.events().await));
    for (count, what) in &injected {
        println!("  {count:>6} {what}");
    }
    for (count, what) in injected {
        assert!(count > 0, "the run had no {what}");
    }
}

/// The targets of the faults.
struct FaultInjector {
    fleet: faults::Shared,
    resource: Arc<Resource>,
    server: Option<Arc<Postgres>>,
    store: String,
    cluster: Option<Arc<Cluster>>,
    crashes: Mutex<Vec<faults::Crash>>,
}

impl FaultInjector {
    /// Injects faults for this time. Returns the count and the name of each fault.
    async fn inject(&self, rng: &mut Rng, faulty: Duration) -> Vec<(u64, &'static str)> {
        let (until, fleet) = (Instant::now() + faulty, || Arc::clone(&self.fleet));
        let killing = tokio::spawn(faults::kill(fleet(), rng.fork(), until));
        let pausing = tokio::spawn(faults::pause(fleet(), Arc::clone(&self.resource), rng.fork(), until));
        let mut injected = Vec::new();
        if let Some(server) = &self.server {
            let crashing = tokio::spawn(faults::crash(fleet(), Arc::clone(server), until));
            let cutting = tokio::spawn(faults::terminate(self.store.clone(), rng.fork(), until));
            let crashes = crashing.await.unwrap();
            injected.push((crashes.len() as u64, "servers crashed"));
            self.crashes.lock().unwrap().extend(crashes);
            injected.push((cutting.await.unwrap(), "connections terminated"));
        }
        if let Some(cluster) = &self.cluster {
            let killing_leader = tokio::spawn(faults::kill_leader(Arc::clone(cluster), until));
            injected.push((killing_leader.await.unwrap(), "leaders killed"));
        }
        injected.push((killing.await.unwrap(), "processes killed"));
        injected.push((pausing.await.unwrap(), "processes paused past their lease"));
        injected
    }
}

/// Invites each process to be a voting node of the ledger, like the two in this process: seven in all.
async fn invitations(cluster: &Cluster) -> Vec<String> {
    let mut invited = Vec::new();
    for _ in 0..SIZE {
        invited.push(cluster.invite(true).await);
    }
    invited
}
