//! Reading the policy file from disk.

use std::fs::File;
use std::io::{Error, Read};
use std::path::{Path, PathBuf};

use holdoff_policy::{PolicySet, Problems};

/// Reads a policy file. On any problem nothing is in force, and the error names every problem.
///
/// The sections about durable work and locks are passed by.
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

/// Reads a policy file by `read`, for whoever wants more of it than its policies.
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

/// Reads no more than a policy file may have.
fn read_text(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    File::open(path)?.take(PolicySet::MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > PolicySet::MAX_FILE {
        return Err(Error::other(format!(
            "it is longer than the {} bytes a policy file may have",
            PolicySet::MAX_FILE
        )));
    }
    String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8 text"))
}

/// Why a policy file is not in force.
///
/// Its debug text is the same as its display text, so that `main() -> Result<(), Box<dyn Error>>` shows people
/// what to mend.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the policy file {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Error,
    },
    /// It can be read, but not used.
    #[error("the policy file cannot be used\n\n{0}")]
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
    fn a_file_is_read_and_its_problems_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "[operations]\n\"a\" = \"lock\"\n").unwrap();
        assert_eq!(load(&path).unwrap().policy_for("default", "a").0, "lock");
        std::fs::write(&path, "[operations]\n\"a\" = \"lok\"\n").unwrap();
        let message = load(&path).unwrap_err().to_string();
        assert!(message.contains("mine.toml:2:7: there is no policy `lok`"), "{message}");
        std::fs::write(&path, "#".repeat(PolicySet::MAX_FILE + 10)).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("it is longer than"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("not UTF-8"));
        assert!(load(folder.path().join("none.toml")).unwrap_err().to_string().contains("cannot read"));
    }
}
