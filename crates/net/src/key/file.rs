//! A key in a file that only its owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Key, NoRandomness};
use crate::hex;

/// What the file begins with.
const MARK: &str = "holdoff-secret-key-1 ";

/// The mark, 64 digits and the end of the line; whoever has more in it has something else in it.
const LONGEST: u64 = 128;

/// Why a key was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file could not be read. Nothing has changed.
    #[error("the key in {path} cannot be read: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than the owner may read the file, so the key may be known. It was not used.
    #[error(
        "the key in {path} may be read by others (mode {mode:o}): if nobody has, `chmod 600` it; else make a new one"
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{path} holds no key: {why}")]
    NotAKey {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is a file already, which is never written over. Nothing has changed.
    #[error("{path} is there already: a key is never written over")]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// The file could not be written; there is none under that name.
    #[error("the key cannot be written to {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No key could be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl Key {
    /// Reads the key in this file, if only its owner may.
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

    /// Writes the key to a new file that only its owner may read, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), KeyFileError> {
        let path = path.as_ref();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
            _ => KeyFileError::Write { path: path.to_owned(), source },
        };
        // Under its own name the file is there only when it is whole; a link is never made over another file.
        let aside = aside(path)?;
        let written = self.write_aside(&aside).and_then(|()| fs::hard_link(&aside, path));
        let removed = fs::remove_file(&aside);
        written.and(removed).and_then(|()| sync_folder(path)).map_err(failed)
    }

    /// The key in this file; a new one, written there, if there is no such file.
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        match Self::load(path) {
            Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let key = Self::generate()?;
        match key.save(path) {
            Ok(()) => Ok(key),
            // Somebody else was faster.
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

/// A name beside the file's that nobody else uses.
fn aside(path: &Path) -> Result<PathBuf, NoRandomness> {
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(drawn)));
    Ok(name.into())
}

/// The name is durable when its folder is.
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

/// Elsewhere the folder's rights must do.
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
