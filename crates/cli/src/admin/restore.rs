//! `holdoff admin restore`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use holdoff_lock::{LockFilter, Locks, Token};
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
use crate::output;

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
}

/// The state of the store before the restore.
struct PreviousStore {
    /// The name under which the previous store is kept, if it was in use.
    aside: Option<String>,
    /// A token that no token of the previous store's locks exceeds.
    highest: Token,
}

pub(super) async fn run(
    store: &StoreUrl,
    args: &RestoreArgs,
    global: &GlobalArgs,
) -> Result<(), CommandError> {
    let (url, file) = (store.as_str(), &args.file);
    let PreviousStore { aside, highest } = match url.split(':').next() {
        Some("postgres" | "postgresql") => into_postgres(store, file, args.force).await?,
        Some("sqlite") if !url.contains(":memory:") => into_sqlite(store, file, args.force).await?,
        _ => {
            let message = format!("cannot restore into {store}; name a SQLite file or a Postgres database");
            return Err(CommandError::Usage(message));
        }
    };
    // New tokens are above all tokens of the previous store, whatever the clock shows. If grants were lost with another
    // store, their tokens are times of the past, and the time orders them.
    let locks = Locks::open(url).await?;
    let floor = locks.raise_floor(highest.min(Token::MAX_FLOOR)).await?;
    let held = locks.list(&LockFilter::default().held().limit(MAX_COUNTED_LOCKS)).await?.len();
    let work = Box::pin(Work::attach(url, PolicySet::default(), Settings::default())).await?;
    let stats = work.stats().await?;
    let count = |of: fn(&holdoff_work::QueueStats) -> u64| stats.iter().map(of).sum::<u64>();
    let running = count(|queue| queue.running);
    let live = running + count(|queue| queue.blocked + queue.due + queue.waiting);

    let mut out = output::stdout();
    if global.json {
        let answer = json!({
            "store": store.to_string(), "floor": floor, "live_steps": live, "running_steps": running,
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
        writeln!(
            out,
            "locks: {held} are held until their leases expire; new fencing tokens are above {floor}"
        )?;
    }
    // The restored store does not contain the locks of a ledger, which the daemon grants.
    if let Some(ledger) = load_settings(global.config.as_deref())?.lock.ledger() {
        note!("The daemon's locks are in the ledger {ledger}, which was not restored.");
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
    let highest = highest_token(&target).await.inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })?;
    let aside = (!is_empty).then(|| sibling(&target, &format!("before-restore-{}", std::process::id())));
    if let Some(aside) = &aside {
        std::fs::rename(&target, aside).map_err(cannot)?;
    }
    std::fs::rename(&new, &target).map_err(cannot)?;
    Ok(PreviousStore { aside: aside.map(|path| path.display().to_string()), highest })
}

/// Returns the highest token of the locks in a file that no process has open, or 0 if the file does not exist.
async fn highest_token(file: &Path) -> Result<Token, BackupError> {
    if !file.exists() {
        return Ok(Token::new(0));
    }
    sqlite::close_exclusively(file).await?;
    Ok(Token::new(sqlite::highest_token(file).await?))
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
        highest: Token::new(previous.highest_token),
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
