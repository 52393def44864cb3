//! Space: memory over a million steps, the SQLite file after pruning, Postgres' tables over five cycles.

use std::path::Path;
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_testbed::{Options, Postgres, postgres_binaries};
use holdoff_work::{PageRequest, Settings, StepFilter, StepState, Work};

use crate::row::Row;
use crate::work;

const CYCLES: usize = 5;
const STEPS: u32 = 200_000;
/// On SQLite the cycles are smaller, so that enough of them follow after caches have filled and allocators
/// have settled.
const SMALL_CYCLES: usize = 10;
const FEW_STEPS: u32 = 100_000;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let mut rows = Vec::new();
    for measured in [runtime.block_on(sqlite()), runtime.block_on(postgres())] {
        match measured {
            Ok(measured) => rows.extend(measured),
            Err(why) => eprintln!("space: not measured, {why}"),
        }
    }
    rows
}

async fn sqlite() -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("work.db");
    let url = format!("sqlite:{}", file.display());
    // The first handle keeps all steps during a cycle; the second keeps none, and prunes.
    let (keeper, pruner) = (open(&url, Duration::from_secs(3600)).await?, open(&url, Duration::ZERO).await?);
    let mut memory = Vec::new();
    for _ in 0..SMALL_CYCLES {
        cycle(&keeper, FEW_STEPS).await?;
        pruner.prune().await.map_err(|error| error.to_string())?;
        memory.push(resident());
        eprintln!("space: SQLite: {:.1} MiB of memory", resident() / MIB);
    }
    let start = size(&file);
    for _ in 0..CYCLES {
        cycle(&keeper, FEW_STEPS).await?;
    }
    let full = size(&file);
    pruner.prune().await.map_err(|error| error.to_string())?;
    let end = size(&file);
    let (Some(half), Some(last)) = (memory.get(SMALL_CYCLES / 2 - 1), memory.last()) else {
        return Err("too few cycles".to_owned());
    };
    let memory =
        Row::grown("memory after a million steps", "MiB", last / MIB, ("after half a million", half / MIB));
    let pruned = Row::grown("SQLite file after pruning", "MiB", end / MIB, ("at the start", start / MIB));
    Ok(vec![
        memory.bar("≤ 1.1", *last <= 1.1 * half),
        Row::grown("SQLite file, half a million kept", "MiB", full / MIB, ("at the start", start / MIB)),
        pruned.bar("≤ 1.2", end <= 1.2 * start),
    ])
}

async fn postgres() -> Result<Vec<Row>, String> {
    if postgres_binaries().is_none() {
        return Err("Postgres is not installed".to_owned());
    }
    let settings = [("shared_buffers", "256MB"), ("autovacuum_naptime", "1s"), ("max_wal_size", "4GB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start_with(&Options { fsync: true, settings });
    let url = server.create_database("space");
    let database = url.rsplit('/').next().unwrap_or_default().to_owned();
    let work = open(&url, Duration::ZERO).await?;
    let mut sizes = Vec::new();
    for _ in 0..CYCLES {
        cycle(&work, STEPS).await?;
        work.prune().await.map_err(|error| error.to_string())?;
        let query = "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'holdoff' and c.relkind = 'r'";
        let size: f64 = server.psql(&database, query).trim().parse().unwrap_or(f64::NAN);
        eprintln!("space: Postgres: {:.1} MiB of tables and indexes", size / MIB);
        sizes.push(size);
    }
    let [_, second, .., last] = sizes.as_slice() else { return Err("too few cycles".to_owned()) };
    let row = Row::grown("Postgres tables, fifth cycle", "MiB", last / MIB, ("second cycle", second / MIB));
    Ok(vec![row.bar("≤ 1.2", *last <= 1.2 * second)])
}

async fn open(url: &str, keep: Duration) -> Result<Work, String> {
    let mut settings = Settings::default();
    settings.history.keep = keep;
    settings.history.max_rows = u64::MAX;
    Work::open_with(url, PolicySet::default(), settings).await.map_err(|error| error.to_string())
}

/// Submits steps and processes them.
async fn cycle(work: &Work, steps: u32) -> Result<(), String> {
    let worker = work::start(work, 2000).await?;
    work::submit_all(work, steps, Duration::ZERO).await?;
    let live = StepFilter::states([StepState::Ready, StepState::Running]);
    while !work.list(&live, &PageRequest::first(1)).await.map_err(|error| error.to_string())?.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.shutdown().await;
    Ok(())
}

/// Returns the size of the file and its log.
#[expect(clippy::cast_precision_loss, reason = "a size in MiB")]
fn size(file: &Path) -> f64 {
    let log = file.with_extension("db-wal");
    [file, &log].iter().filter_map(|path| path.metadata().ok()).map(|file| file.len()).sum::<u64>() as f64
}

/// Returns the resident memory of this process.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    kib * 1024.0
}
