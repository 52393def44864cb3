//! A key in a file that only its owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Key, NoRandomness};
use crate::hex;

/// The prefix of the file.
const MARK: &str = "holdoff-secret-key-1 ";

/// The size limit of the file: prefix, 64 digits and line end fit. A longer file is not a key file.
const LONGEST: u64 = 128;

/// The reason why a key was not read or not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file could not be read. Nothing has changed.
    #[error("the key in {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Users other than the owner may read the file, so the key may be known to them. It was not used.
    #[error(
        "the key in {path} may be read by others (mode {mode:o}): if nobody has, `chmod 600` it; else make a new one"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The content of the file is not a key.
    #[error("{path} holds no key: {why}")]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// The violated rule.
        why: &'static str,
    },
    /// The file exists already and is never overwritten. Nothing has changed.
    #[error("{path} is there already: a key is never written over")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written; no file exists under that name.
    #[error("the key cannot be written to {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No key could be generated.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl Key {
    /// Reads the key in this file, if only its owner may read the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        private(&file.metadata().map_err(failed)?)
            .map_err(|mode| KeyFileError::Exposed { path: path.to_owned(), mode })?;
        let mut text = Zeroizing::new(String::with_capacity(256));
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
        let not = |why| KeyFileError::NotAKey { path: path.to_owned(), why };
        let digits = text.strip_prefix(MARK).ok_or_else(|| not("it does not begin as a key file does"))?;
        let secret = hex::read(digits.trim_end())
            .map_err(|_| not("64 hexadecimal digits should follow its first word"))?;
        Ok(Self::from_secret(&Zeroizing::new(secret)))
    }

    /// Writes the key atomically to a new file that only its owner may read.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), KeyFileError> {
        let path = path.as_ref();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
            _ => KeyFileError::Write { path: path.to_owned(), source },
        };
        // The file gets its final name only when it is complete. A hard link never replaces an existing file.
        let aside = aside(path)?;
        let written = self.write_aside(&aside).and_then(|()| fs::hard_link(&aside, path));
        let removed = fs::remove_file(&aside);
        written.and(removed).and_then(|()| sync_folder(path)).map_err(failed)
    }

    /// Reads the key in this file. If there is no such file, generates a key and writes it there.
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        match Self::load(path) {
            Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let key = Self::generate()?;
        match key.save(path) {
            Ok(()) => Ok(key),
            // Another process created the file first.
            Err(KeyFileError::Exists { .. }) => Self::load(path),
            Err(error) => Err(error),
        }
    }

    fn write_aside(&self, aside: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(aside)?;
        let text = Zeroizing::new(format!("{MARK}{}\n", Digits(self.secret())));
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

struct Digits<'a>(&'a [u8; 32]);

impl std::fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        hex::write(self.0, f)
    }
}

/// Returns a random, unused name beside the file.
fn aside(path: &Path) -> Result<PathBuf, NoRandomness> {
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(drawn)));
    Ok(name.into())
}

/// Syncs the folder: the file's name is durable only when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(unix)]
fn private(metadata: &fs::Metadata) -> Result<(), u32> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    let of_others = mode & 0o077;
    if of_others == 0 { Ok(()) } else { Err(mode) }
}

/// On other systems the permissions of the folder must protect the file.
#[cfg(not(unix))]
fn private(_: &fs::Metadata) -> Result<(), u32> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_kept_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = Key::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Key::load(&path).unwrap().public(), key.public());
        assert_eq!(Key::load_or_create(&path).unwrap().public(), key.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = Key::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("640") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_key_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (first, second) = (Key::generate().unwrap(), Key::generate().unwrap());
        first.save(&path).unwrap();
        assert!(matches!(second.save(&path), Err(KeyFileError::Exists { .. })));
        assert_eq!(Key::load(&path).unwrap().public(), first.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_key_is_not_shown_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in ["", "my password", "holdoff-secret-key-1 abc", &"holdoff-secret-key-1 0".repeat(9)] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let error = Key::load(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::NotAKey { .. }), "{error}");
            assert!(!error.to_string().contains("password"));
        }
    }
}
