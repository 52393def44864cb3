//! `holdoff admin backup`

use std::fs::File;
use std::io::Write;
use std::path::Path;

use holdoff_server::Place;
use holdoff_sql::sqlite::backup as sqlite;

use super::postgres;
use crate::failure::Failure;

pub(super) async fn run(place: &Place, file: &Path, json: bool) -> Result<(), Failure> {
    crate::work::refuse_missing(place)?;
    let url = place.url();
    let (is_postgres, is_file) =
        (url.starts_with("postgres"), url.starts_with("sqlite:") && !url.contains(":memory:"));
    if !is_postgres && !is_file {
        return Err(Failure::Usage(format!("{place} has nothing that could be copied into a file")));
    }
    let made = new_private(file)?;
    let copied = if is_postgres {
        postgres::dump(url, &made)
    } else {
        sqlite::copy(&sqlite::file_of(url)?, file).await.map_err(Failure::from)
    };
    let copied = copied.and_then(|()| safe_on_disk(file, &made));
    if let Err(failure) = copied {
        // Removes the incomplete backup, so that no operator restores from it.
        let _ = std::fs::remove_file(file);
        return Err(failure);
    }
    let bytes = std::fs::metadata(file).map(|found| found.len()).unwrap_or_default();
    let mut out = anstream::stdout();
    if json {
        let answer = serde_json::json!({ "file": file, "bytes": bytes, "store": place.to_string() });
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(
        out,
        "{place} is copied into {} ({bytes} bytes), whole as far as its check goes",
        file.display()
    )?;
    Ok(())
}

/// Creates a new file that only its owner can read, because a backup contains payloads.
fn new_private(path: &Path) -> Result<File, Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::Failed(format!("{} is there already, and no backup is written over", path.display()))
        }
        _ => Failure::Failed(format!("cannot make {}: {error}", path.display())),
    })
}

/// Syncs the backup and its directory, so that both the content and the file name survive a power failure.
fn safe_on_disk(path: &Path, made: &File) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = made.sync_all().and_then(|()| File::open(folder)?.sync_all());
    synced.map_err(|error| Failure::Failed(format!("cannot bring {} to the disk: {error}", path.display())))
}
