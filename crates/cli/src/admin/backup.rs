//! `holdoff admin backup`

use std::fs::File;
use std::io::Write;
use std::path::Path;

use holdoff_server::StoreUrl;
use holdoff_sql::sqlite::backup as sqlite;

use super::postgres;
use crate::error::CommandError;
use crate::output;
use crate::store;

pub(super) async fn run(store: &StoreUrl, file: &Path, json: bool) -> Result<(), CommandError> {
    store::require_existing(store, crate::work::CREATORS)?;
    let url = store.as_str();
    let (is_postgres, is_file) =
        (url.starts_with("postgres"), url.starts_with("sqlite:") && !url.contains(":memory:"));
    if !is_postgres && !is_file {
        return Err(CommandError::Usage(format!(
            "{store} cannot be copied into a file; back up a SQLite file or a Postgres database"
        )));
    }
    let made = create_private(file)?;
    let copied = if is_postgres {
        postgres::dump(url, &made)
    } else {
        sqlite::copy(&sqlite::file_of(url)?, file).await.map_err(CommandError::from)
    };
    let copied = copied.and_then(|()| sync_to_disk(file, &made));
    if let Err(failure) = copied {
        // Removes the incomplete backup, so that no operator restores from it.
        let _ = std::fs::remove_file(file);
        return Err(failure);
    }
    let bytes = std::fs::metadata(file).map(|found| found.len()).unwrap_or_default();
    let mut out = output::stdout();
    if json {
        let answer = serde_json::json!({ "file": file, "bytes": bytes, "store": store.to_string() });
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(out, "copied {store} into {} ({bytes} bytes) and checked the copy", file.display())?;
    Ok(())
}

/// Creates a new file that only its owner can read, because a backup contains payloads.
fn create_private(path: &Path) -> Result<File, CommandError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CommandError::Failed(format!("{} already exists; name a new file", path.display()))
        }
        _ => CommandError::Failed(format!("cannot create {}: {error}", path.display())),
    })
}

/// Syncs the backup and its directory, so that both the content and the file name survive a power failure.
fn sync_to_disk(path: &Path, made: &File) -> Result<(), CommandError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = made.sync_all().and_then(|()| File::open(folder)?.sync_all());
    synced.map_err(|error| CommandError::Failed(format!("cannot sync {} to disk: {error}", path.display())))
}
