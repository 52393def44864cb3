//! The store of the work.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The file in the data directory.
const FILE: &str = "holdoff.db";

/// The store of the work: a store's address, or a SQLite file in a data directory.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    url: String,
    file: Option<PathBuf>,
}

impl StoreUrl {
    /// The store at this address: `sqlite:FILE` or `postgres://…`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), file: None }
    }

    /// The file `holdoff.db` in this directory.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let file = directory.as_ref().join(FILE);
        // These two characters have a meaning in a URL.
        let path = file.to_string_lossy().replace('%', "%25").replace('?', "%3f");
        Self { url: format!("sqlite://{path}"), file: Some(file) }
    }

    /// Returns the data directory, if it is one.
    pub fn directory(&self) -> Option<&Path> {
        self.file.as_deref()?.parent()
    }

    /// Returns the store's address. It may contain a password.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns the store's address without its password and without the options, which may contain one.
    pub fn redacted(&self) -> String {
        holdoff_sql::without_password(&self.url)
    }

    /// Creates the data directory if it does not exist. Only its owner may read it. Opening the store creates the file.
    pub fn create(&self) -> Result<(), Error> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let cannot = |source| Error::Directory { path: directory.to_owned(), source };
        create_private_directory(directory).map_err(cannot)
    }

    /// Returns a warning for each way in which other users of the machine can read or replace the store's file.
    #[cfg(unix)]
    pub(crate) fn warnings(&self) -> Vec<String> {
        use std::os::unix::fs::PermissionsExt;
        let url = Some(&*self.url).filter(|url| url.starts_with("sqlite:"));
        let Some(Ok(file)) = url.map(holdoff_sql::sqlite::backup::file_of) else { return Vec::new() };
        let mut warnings = Vec::new();
        let (shown, mode) =
            (file.display(), |path: &Path| path.metadata().map_or(0, |it| it.permissions().mode()));
        if file.is_symlink() {
            warnings.push(format!("the store {shown} is a symbolic link: name its target instead"));
        }
        let (file_mode, folder) = (mode(&file) & 0o777, file.canonicalize().unwrap_or_default());
        if file_mode & 0o077 != 0 {
            warnings.push(format!(
                "other users have access to the store {shown}: it has mode {file_mode:o}; run `chmod 600`"
            ));
        }
        if let Some(folder) = folder.parent().filter(|folder| mode(folder) & 0o002 != 0) {
            let folder = folder.display();
            warnings.push(format!(
                "every user can create files in {folder}, beside the store: move the store to a directory of mode 700"
            ));
        }
        warnings
    }

    #[cfg(not(unix))]
    pub(crate) fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the file in the data directory, if it does not exist yet.
    pub fn missing_file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|file| !file.exists())
    }

    /// Returns the store's name as a prefix of an error message, unless the error names it itself.
    pub(crate) fn error_prefix(&self, error: &holdoff_work::Error) -> String {
        match error {
            holdoff_work::Error::Address { .. } => String::new(),
            _ => format!("cannot open the store {self}: "),
        }
    }

    /// Returns a hint to append to an error message.
    pub(crate) fn error_hint(&self, error: &holdoff_work::Error) -> &'static str {
        match error {
            holdoff_work::Error::Store { .. } if self.is_postgres() => {
                ". Check that the server is reachable, that the database exists, and that the user may log in"
            }
            holdoff_work::Error::Store { .. } => {
                ". Check that it is a file of holdoff on a local disk, in a writable directory"
            }
            _ => "",
        }
    }

    fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }
}

/// Shows the address without its password, and without the query parameters, which may contain one.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            return write!(f, "{} (SQLite)", file.display());
        }
        let address = self.redacted();
        if let Some(path) = address.strip_prefix("sqlite:") {
            return write!(f, "{} (SQLite)", path.strip_prefix("//").unwrap_or(path));
        }
        let kind = if self.is_postgres() { " (Postgres)" } else { "" };
        write!(f, "{address}{kind}")
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(unix)]
fn create_private_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private_directory(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_omits_the_password() {
        let shown = |url: &str| StoreUrl::new(url).to_string();
        assert_eq!(shown("postgres://me:secret@db/x?password=again"), "postgres://me@db/x (Postgres)");
        assert_eq!(shown("postgres://me:p@ss@db/x"), "postgres://me@db/x (Postgres)");
        assert_eq!(shown("postgres:///x?host=/run"), "postgres:///x (Postgres)");
        assert_eq!(shown("sqlite:a.db?mode=rwc"), "a.db (SQLite)");
        assert_eq!(shown("sqlite:///tmp/a.db"), "/tmp/a.db (SQLite)");
        assert_eq!(shown("mysql"), "mysql");
        assert_eq!(shown("mysql://me:secret@db/x"), "mysql://me@db/x");
        assert_eq!(shown("kubernetes:jobs"), "kubernetes:jobs");
        let store = StoreUrl::new("postgres://me:secret@db/x");
        assert_eq!(format!("{store:?}"), "postgres://me@db/x (Postgres)");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn created_files_are_private_to_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let temporary = tempfile::tempdir().unwrap();
        let store = StoreUrl::in_directory(temporary.path().join("odd %41?name").join("inside"));
        assert!(store.missing_file().is_some());
        store.create().unwrap();
        store.create().unwrap();
        crate::TokenStore::open(store.as_str()).await.unwrap();
        assert!(store.missing_file().is_none());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = temporary.path().join("odd %41?name").join("inside").join(FILE);
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
        assert_eq!(store.warnings(), Vec::<String>::new());

        let set =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(&file, 0o644);
        set(file.parent().unwrap(), 0o777);
        let link = temporary.path().join("link.db");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let warnings = StoreUrl::new(format!("sqlite:{}", link.display())).warnings();
        let expected = ["is a symbolic link", "has mode 644", "every user can create files in"];
        assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }
}
