//! One run: a period with faults, a period without, and the checks.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use holdoff_lock::Locks;
use holdoff_testbed::Postgres;
use tokio::time::Instant;

use crate::chaos::check::{self, Notes};
use crate::chaos::faults;
use crate::chaos::fleet::{Fleet, SIZE};
use crate::chaos::resource::{self, Resource};
use crate::chaos::witness::Witness;
use crate::node::ledger::Cluster;

/// The environment of a run.
pub(crate) struct Ground {
    pub(crate) store: String,
    pub(crate) resource: String,
    pub(crate) server: Option<Postgres>,
    pub(crate) engine: &'static str,
    /// The default duration of the faults.
    pub(crate) seconds: u64,
}

/// The maximum number of such periods. The faults go on until the notes show everything that the run must show.
const MOST_ROUNDS: usize = 6;
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?}")))
}

pub(crate) fn run(ground: Ground) {
    let seed = number("HOLDOFF_CHAOS_SEED").unwrap_or_else(|| Rng::new().u64(..));
    let faulty = Duration::from_secs(number("HOLDOFF_CHAOS_SECONDS").unwrap_or(ground.seconds));
    let engine = ground.engine;
    println!(
        "chaos on {engine}: HOLDOFF_CHAOS_SEED={seed} HOLDOFF_CHAOS_SECONDS={} cargo test -p holdoff-lock \
         --all-features --test it chaos::on_{engine} -- --nocapture",
        faulty.as_secs()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(strike(ground, seed, faulty));
}

async fn strike(ground: Ground, seed: u64, faulty: Duration) {
    let Ground { store, resource: protected, server, engine, .. } = ground;
    let logs = tempfile::tempdir().unwrap();
    let resource = Arc::new(Resource::open(&protected).await);
    resource.make().await;
    let cluster = if engine == "a_ledger" { Some(Arc::new(Cluster::new(2).await)) } else { None };
    let witness = cluster.as_ref().map(|cluster| Witness::of(cluster.at(faults::SPARED)));
    let stores = if let Some(cluster) = &cluster {
        invitations(cluster).await
    } else {
        drop(Locks::open(&store).await.unwrap());
        resource::note_grants(&store).await;
        vec![store.clone(); SIZE]
    };
    let fleet = Fleet::start(stores, protected, logs.path().to_owned(), seed);
    let fleet = Arc::new(Mutex::new(fleet));
    // Kept until the end of the run: dropping it stops the server.
    let server = server.map(Arc::new);
    let storm = Storm { fleet, resource: Arc::clone(&resource), server: server.clone(), store, cluster };
    let mut rng = Rng::with_seed(seed);
    let mut struck = storm.strike(&mut rng, faulty).await;
    for _ in 1..MOST_ROUNDS {
        // A busy machine does little in the same time.
        if struck.iter().all(|(count, _)| *count > 0) && Notes::show_all(logs.path()) {
            break;
        }
        let again = storm.strike(&mut rng, faulty).await;
        struck.iter_mut().zip(again).for_each(|((count, _), (more, _))| *count += more);
    }
    let Storm { fleet, store, .. } = storm;
    let peace = Instant::now();
    let mut fleet = Arc::into_inner(fleet).expect("nobody strikes any more").into_inner().unwrap();
    fleet.finish(CONDITION_TIMEOUT).await;
    println!("  all had their turn {:.1?} after the faults", peace.elapsed());
    let notes = Notes::read(logs.path());
    let grants = match &witness {
        Some(witness) => witness.grants().await,
        None => resource::grants(&store).await,
    };
    struck.extend(check::check(server.is_some(), &notes, &grants, &resource.events().await));
    for (count, what) in &struck {
        println!("  {count:>6} {what}");
    }
    for (count, what) in struck {
        assert!(count > 0, "no {what}: this run shows nothing");
    }
}

/// The targets of the faults.
struct Storm {
    fleet: faults::Shared,
    resource: Arc<Resource>,
    server: Option<Arc<Postgres>>,
    store: String,
    cluster: Option<Arc<Cluster>>,
}

impl Storm {
    /// Injects faults for this time. Returns the count and the name of each fault.
    async fn strike(&self, rng: &mut Rng, faulty: Duration) -> Vec<(u64, &'static str)> {
        let (until, fleet) = (Instant::now() + faulty, || Arc::clone(&self.fleet));
        let killing = tokio::spawn(faults::kill(fleet(), rng.fork(), until));
        let pausing = tokio::spawn(faults::pause(fleet(), Arc::clone(&self.resource), rng.fork(), until));
        let mut struck = Vec::new();
        if let Some(server) = &self.server {
            let crashing = tokio::spawn(faults::crash(fleet(), Arc::clone(server), until));
            let cutting = tokio::spawn(faults::terminate(self.store.clone(), rng.fork(), until));
            struck.push((crashing.await.unwrap(), "servers crashed"));
            struck.push((cutting.await.unwrap(), "connections terminated"));
        }
        if let Some(cluster) = &self.cluster {
            let deposing = tokio::spawn(faults::depose(Arc::clone(cluster), until));
            struck.push((deposing.await.unwrap(), "leaders killed"));
        }
        struck.push((killing.await.unwrap(), "processes killed"));
        struck.push((pausing.await.unwrap(), "processes paused past their lease"));
        struck
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
