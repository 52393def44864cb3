//! `holdoff admin restore`

use std::io::Write;
use std::path::{Path, PathBuf};

use holdoff_lock::{Filter, Locks};
use holdoff_policy::PolicySet;
use holdoff_server::Place;
use holdoff_sql::BackupError;
use holdoff_sql::postgres::backup::{self as database, Contents};
use holdoff_sql::sqlite::backup as sqlite;
use holdoff_work::{Settings, Work};
use serde_json::json;

use super::postgres;
use crate::failure::Failure;

/// The maximum number of held locks that the summary counts.
const MOST_LOCKS: u32 = 1000;

/// The state of the store before the restore.
struct Before {
    /// The name under which the previous store is kept, if it was in use.
    aside: Option<String>,
    /// The fencing epoch of the previous store's locks.
    era: u64,
}

pub(super) async fn run(
    place: &Place,
    file: &Path,
    force: bool,
    least: u64,
    json: bool,
) -> Result<(), Failure> {
    let url = place.url();
    let Before { aside, era: before } = match url.split(':').next() {
        Some("postgres" | "postgresql") => into_postgres(place, file, force).await?,
        Some("sqlite") if !url.contains(":memory:") => into_sqlite(place, file, force).await?,
        _ => return Err(Failure::Usage(format!("{place} is nothing that could be restored"))),
    };
    // Every fencing token from now on is above each token granted after the backup, including those of the previous
    // store.
    let locks = Locks::open(url).await?;
    let mut era = locks.raise_era().await?;
    while era <= before || era < least {
        era = locks.raise_era().await?;
    }
    let held = locks.list(&Filter::default().held().limit(MOST_LOCKS)).await?.len();
    let work = Box::pin(Work::attach(url, PolicySet::default(), Settings::default())).await?;
    let stats = work.stats().await?;
    let count = |of: fn(&holdoff_work::QueueStats) -> u64| stats.iter().map(of).sum::<u64>();
    let running = count(|queue| queue.running);
    let live = running + count(|queue| queue.blocked + queue.due + queue.waiting);

    let mut out = anstream::stdout();
    if json {
        let answer = json!({
            "store": place.to_string(), "era": era, "live_steps": live, "running_steps": running, "held_locks": held,
            "put_aside": aside,
        });
        return Ok(writeln!(out, "{answer}")?);
    }
    if let Some(aside) = aside {
        writeln!(out, "what was there is put aside as {aside}")?;
    }
    writeln!(out, "{place} is restored from {}", file.display())?;
    writeln!(
        out,
        "steps: {live} are not finished; {running} of them were running, and are put back when their leases are over"
    )?;
    writeln!(
        out,
        "locks: {held} were held, and are free when their leases are over; era {era} begins, so that every token is above all before"
    )?;
    Ok(())
}

async fn into_sqlite(place: &Place, file: &Path, force: bool) -> Result<Before, Failure> {
    sqlite::check(file).await?;
    place.make().map_err(|error| Failure::Failed(error.to_string()))?;
    let target = sqlite::file_of(place.url())?;
    let is_empty = sqlite::is_empty(&target).await?;
    if !is_empty && !force {
        return Err(not_empty(place));
    }
    let cannot = |error: std::io::Error| Failure::Failed(format!("cannot restore {place}: {error}"));
    // Copies into a sibling file first, so that the rename replaces the store atomically.
    let new = beside(&target, "restoring");
    let _ = std::fs::remove_file(&new);
    private_copy(file, &new).map_err(cannot)?;
    let era = era_of(&target).await.inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })?;
    let aside = (!is_empty).then(|| beside(&target, &format!("before-restore-{}", std::process::id())));
    if let Some(aside) = &aside {
        std::fs::rename(&target, aside).map_err(cannot)?;
    }
    std::fs::rename(&new, &target).map_err(cannot)?;
    Ok(Before { aside: aside.map(|path| path.display().to_string()), era })
}

/// Returns the fencing epoch of the locks in a file that no process has open, or 0 if the file does not exist.
async fn era_of(file: &Path) -> Result<u64, BackupError> {
    if !file.exists() {
        return Ok(0);
    }
    sqlite::close_for_all(file).await?;
    sqlite::era(file).await
}

async fn into_postgres(place: &Place, file: &Path, force: bool) -> Result<Before, Failure> {
    postgres::check(file)?;
    if database::contents(place.url()).await? == Contents::Used && !force {
        return Err(not_empty(place));
    }
    let room = database::make_room(place.url()).await?;
    postgres::restore(place.url(), file).map_err(|failure| match &room.aside {
        Some(aside) => Failure::Failed(format!(
            "{failure}\nwhat was there is in the schema {aside}: `alter schema {aside} rename to holdoff` brings it back"
        )),
        None => failure,
    })?;
    Ok(Before { aside: room.aside.map(|schema| format!("the schema {schema}")), era: room.era })
}

fn not_empty(place: &Place) -> Failure {
    Failure::Failed(format!(
        "{place} is not empty, and nothing was changed: restore into a new place, or say --force to put aside what is \
         there"
    ))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
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
