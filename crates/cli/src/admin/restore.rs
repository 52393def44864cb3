//! `holdoff admin restore`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use holdoff_lock::{LockFilter, Locks};
use holdoff_policy::PolicySet;
use holdoff_server::StoreUrl;
use holdoff_sql::BackupError;
use holdoff_sql::postgres::backup::{self as database, Contents};
use holdoff_sql::sqlite::backup as sqlite;
use holdoff_work::{Settings, Work};
use serde_json::json;

use super::postgres;
use crate::args::GlobalArgs;
use crate::config::load_settings;
use crate::error::CommandError;

/// The maximum number of held locks that the summary counts.
const MAX_COUNTED_LOCKS: u32 = 1000;

#[derive(clap::Args, Debug)]
pub(super) struct RestoreArgs {
    /// Backup to restore, created by `holdoff admin backup`
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Restore even if the store is not empty; the previous content is renamed and kept
    #[arg(long)]
    force: bool,

    /// Lowest fencing epoch to start with, if locks have reached a higher one since the backup
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(..4_000_000))]
    epoch: u64,
}

/// The state of the store before the restore.
struct PreviousStore {
    /// The name under which the previous store is kept, if it was in use.
    aside: Option<String>,
    /// The fencing epoch of the previous store's locks.
    epoch: u64,
}

pub(super) async fn run(
    store: &StoreUrl,
    args: &RestoreArgs,
    global: &GlobalArgs,
) -> Result<(), CommandError> {
    let (url, file) = (store.as_str(), &args.file);
    let PreviousStore { aside, epoch: previous } = match url.split(':').next() {
        Some("postgres" | "postgresql") => into_postgres(store, file, args.force).await?,
        Some("sqlite") if !url.contains(":memory:") => into_sqlite(store, file, args.force).await?,
        _ => {
            let message = format!("cannot restore into {store}; name a SQLite file or a Postgres database");
            return Err(CommandError::Usage(message));
        }
    };
    // Every fencing token from now on is above each token granted after the backup, including those of the previous
    // store.
    let locks = Locks::open(url).await?;
    let mut epoch = locks.bump_epoch().await?;
    while epoch <= previous || epoch < args.epoch {
        epoch = locks.bump_epoch().await?;
    }
    let held = locks.list(&LockFilter::default().held().limit(MAX_COUNTED_LOCKS)).await?.len();
    let work = Box::pin(Work::attach(url, PolicySet::default(), Settings::default())).await?;
    let stats = work.stats().await?;
    let count = |of: fn(&holdoff_work::QueueStats) -> u64| stats.iter().map(of).sum::<u64>();
    let running = count(|queue| queue.running);
    let live = running + count(|queue| queue.blocked + queue.due + queue.waiting);

    let mut out = anstream::stdout();
    if global.json {
        let answer = json!({
            "store": store.to_string(), "epoch": epoch, "live_steps": live, "running_steps": running,
            "held_locks": held, "previous_store": aside,
        });
        writeln!(out, "{answer}")?;
    } else {
        if let Some(aside) = aside {
            writeln!(out, "kept the previous store as {aside}")?;
        }
        writeln!(out, "restored {store} from {}", file.display())?;
        writeln!(
            out,
            "steps: {live} are unfinished; {running} of them were running and are requeued when their leases expire"
        )?;
        writeln!(out, "locks: {held} are held until their leases expire; fencing epoch {epoch} starts")?;
    }
    // The restored store does not contain the locks of a ledger, which the daemon grants.
    if let Some(ledger) = load_settings(global.config.as_deref())?.lock.ledger() {
        anstream::eprintln!(
            "The daemon's locks are in the ledger {ledger}, which was not restored. If you restored the ledger from \
             copies as well, run `holdoff lock bump-epoch` when a majority of its daemons runs."
        );
    }
    Ok(())
}

async fn into_sqlite(store: &StoreUrl, file: &Path, force: bool) -> Result<PreviousStore, CommandError> {
    sqlite::check(file).await?;
    store.create()?;
    let target = sqlite::file_of(store.as_str())?;
    let is_empty = sqlite::is_empty(&target).await?;
    if !is_empty && !force {
        return Err(not_empty(store));
    }
    let cannot = |error: std::io::Error| CommandError::Failed(format!("cannot restore {store}: {error}"));
    // Copies into a sibling file first, so that the rename restores the store atomically.
    let new = sibling(&target, "restoring");
    let _ = std::fs::remove_file(&new);
    private_copy(file, &new).map_err(cannot)?;
    let epoch = epoch_of(&target).await.inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })?;
    let aside = (!is_empty).then(|| sibling(&target, &format!("before-restore-{}", std::process::id())));
    if let Some(aside) = &aside {
        std::fs::rename(&target, aside).map_err(cannot)?;
    }
    std::fs::rename(&new, &target).map_err(cannot)?;
    Ok(PreviousStore { aside: aside.map(|path| path.display().to_string()), epoch })
}

/// Returns the fencing epoch of the locks in a file that no process has open, or 0 if the file does not exist.
async fn epoch_of(file: &Path) -> Result<u64, BackupError> {
    if !file.exists() {
        return Ok(0);
    }
    sqlite::close_exclusively(file).await?;
    sqlite::lock_epoch(file).await
}

async fn into_postgres(store: &StoreUrl, file: &Path, force: bool) -> Result<PreviousStore, CommandError> {
    postgres::check(file)?;
    if database::contents(store.as_str()).await? == Contents::Used && !force {
        return Err(not_empty(store));
    }
    let previous = database::prepare_restore(store.as_str()).await?;
    postgres::restore(store.as_str(), file).map_err(|error| match &previous.aside {
        Some(aside) => CommandError::Failed(format!(
            "{error}\nThe previous store is in the schema {aside}; `alter schema {aside} rename to holdoff` restores it"
        )),
        None => error,
    })?;
    Ok(PreviousStore {
        aside: previous.aside.map(|schema| format!("the schema {schema}")),
        epoch: previous.epoch,
    })
}

fn not_empty(store: &StoreUrl) -> CommandError {
    CommandError::Failed(format!(
        "{store} is not empty, and nothing was changed; restore into a new store, or add --force to rename and keep \
         the present one"
    ))
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    PathBuf::from(name)
}

/// Copies a file. Only the owner can read the copy, from its first byte on.
fn private_copy(from: &Path, into: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut copy = options.open(into)?;
    std::io::copy(&mut std::fs::File::open(from)?, &mut copy)?;
    copy.sync_all()
}
