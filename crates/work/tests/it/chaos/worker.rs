//! One worker process, which runs until it is killed or its standard input ends.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use holdoff_work::{Context, Fault, Work};

use crate::chaos::effects::{Effects, Fate};
use crate::chaos::plan::{self, Behaviour, Manners, OPERATIONS, Order};

/// The environment variables that configure a worker process.
pub(crate) const STORE: &str = "HOLDOFF_CHAOS_WORKER_STORE";
pub(crate) const EFFECTS: &str = "HOLDOFF_CHAOS_WORKER_EFFECTS";
pub(crate) const SEED: &str = "HOLDOFF_CHAOS_WORKER_SEED";

/// The number of steps that the worker runs at once.
const PLACES: usize = 50;

/// The drain timeout of a graceful shutdown.
const PATIENCE: Duration = Duration::from_millis(50);

/// The maximum number of attempts of a handler to act while the resource is unavailable.
const ATTEMPTS: u32 = 400;

pub(crate) fn run_if_asked() {
    let Ok(store) = std::env::var(STORE) else { return };
    let effects = std::env::var(EFFECTS).unwrap();
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    tracing_subscriber::fmt()
        .with_env_filter("holdoff_work=debug,chaos=debug")
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(serve(&store, &effects, seed)) {
        tracing::error!(%error, "a worker could not start");
        std::process::exit(3);
    }
    std::process::exit(0);
}

async fn serve(store: &str, effects: &str, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let effects = Arc::new(Effects::open(effects)?);
    let work = Box::pin(Work::open_with(store, plan::policies(), plan::settings())).await?;
    let mut worker = work.worker().concurrency(PLACES);
    for operation in OPERATIONS {
        let effects = Arc::clone(&effects);
        worker = worker.handle(operation, move |context: Context, order: Order| {
            handle(context, order, seed, Arc::clone(&effects))
        });
    }
    let worker = worker.start().await?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    worker.shutdown_within(PATIENCE).await;
    Ok(())
}

async fn handle(context: Context, order: Order, seed: u64, effects: Arc<Effects>) -> Result<u64, Fault> {
    let behaviour = Behaviour::of(seed, order.number);
    for (parent, number) in &order.parents {
        let output: Result<u64, Fault> = context.input(parent);
        if output.as_ref() != Ok(number) {
            let what = format!("{} ran with {output:?} of its parent {parent}", context.step());
            let _ = effects.violation(&what).await;
        }
    }
    if behaviour.snoozes && context.token() == 1 {
        return Err(Fault::snooze(Duration::from_millis(100), "not yet"));
    }
    let fails = context.attempt() <= behaviour.failures;
    if !fails || behaviour.fails_late {
        let acting = act(context, behaviour.takes, behaviour.manners, effects);
        let fate = match behaviour.manners {
            Manners::Ordinary => acting.await,
            // If the waiting handler is dropped, the spawned task continues by itself.
            Manners::Polite | Manners::Stubborn => tokio::spawn(acting).await.ok().flatten(),
        };
        if fate != Some(Fate::Applied) {
            // The store must reject this report: otherwise the step would fail and never be done.
            return Err(Fault::permanent("stale, and knows it"));
        }
    }
    assert!(!(fails && behaviour.panics), "a handler panics");
    if fails { Err(Fault::transient("not this time")) } else { Ok(order.number) }
}

/// Applies the effect of the step. Returns `None` if it was stopped before.
async fn act(context: Context, takes: Duration, manners: Manners, effects: Arc<Effects>) -> Option<Fate> {
    let run = i64::from_ne_bytes(fastrand::Rng::new().u64(..).to_ne_bytes());
    let (step, token) = (context.step().to_string(), i64::try_from(context.token()).unwrap());
    tokio::time::sleep(takes).await;
    for _ in 0..ATTEMPTS {
        if manners == Manners::Polite && context.is_cancelled() {
            tracing::debug!(target: "chaos", %step, "stopped by itself");
            return None;
        }
        match effects.apply(&step, token, run).await {
            Ok(fate) => return Some(fate),
            Err(error) => tracing::debug!(target: "chaos", %error, "the resource is away"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}
