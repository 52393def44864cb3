//! Loads the policy file from disk.

use std::fs::File;
use std::io::{Error, Read};
use std::path::{Path, PathBuf};

use holdoff_policy::{PolicySet, Problems};

/// Loads a policy file. If there is any problem, nothing becomes active, and the error names every problem.
///
/// It ignores the sections of durable work and locks.
///
/// ```no_run
/// let set = holdoff::load("holdoff.toml")?;
/// let (name, policy) = set.policy_for("default", "user.login");
/// # let _ = (name, policy);
/// # Ok::<(), holdoff::LoadError>(())
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<PolicySet, LoadError> {
    load_with(path, PolicySet::from_toml)
}

/// Loads a policy file with `read`, for callers that need more of it than the policies.
///
/// ```no_run
/// use holdoff::policy::file;
///
/// let names = holdoff::load_with("holdoff.toml", |text| {
///     file::read(text, |_, document| document.keys().map(|key| key.get_ref().to_string()).collect::<Vec<_>>())
/// })?;
/// # let _ = names;
/// # Ok::<(), holdoff::LoadError>(())
/// ```
pub fn load_with<T>(
    path: impl AsRef<Path>,
    read: impl FnOnce(&str) -> Result<T, Problems>,
) -> Result<T, LoadError> {
    let path = path.as_ref();
    let text = read_text(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    read(&text).map_err(|problems| LoadError::Problems(problems.in_file(path.display().to_string())))
}

/// Reads at most the size limit of a policy file.
fn read_text(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    File::open(path)?.take(PolicySet::MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > PolicySet::MAX_FILE {
        return Err(Error::other(format!(
            "the file is longer than the limit of {} bytes",
            PolicySet::MAX_FILE
        )));
    }
    String::from_utf8(bytes).map_err(|_| Error::other("the file is not UTF-8 text"))
}

/// The reason why a policy file could not be loaded.
///
/// Its debug text equals its display text, so that `main() -> Result<(), Box<dyn Error>>` prints a readable
/// message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the policy file {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Error,
    },
    /// The file can be read, but is invalid.
    #[error("invalid policy file\n\n{0}")]
    Problems(Problems),
}

impl std::fmt::Debug for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_loaded_and_its_problems_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "[operations]\n\"a\" = \"lock\"\n").unwrap();
        assert_eq!(load(&path).unwrap().policy_for("default", "a").0, "lock");
        std::fs::write(&path, "[operations]\n\"a\" = \"lok\"\n").unwrap();
        let message = load(&path).unwrap_err().to_string();
        assert!(message.contains("mine.toml:2:7: there is no policy `lok`"), "{message}");
        std::fs::write(&path, "#".repeat(PolicySet::MAX_FILE + 10)).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("the file is longer than"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("not UTF-8"));
        assert!(load(folder.path().join("none.toml")).unwrap_err().to_string().contains("cannot read"));
    }
}
