//! The secret key of a peer, and its file, which only the owner may read.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ed25519_dalek::{Signer, SigningKey};
use zeroize::Zeroizing;

use crate::hex;
use crate::signature::signed;
use crate::{PublicKey, Signature};

/// The prefix of the file.
const HEADER: &str = "holdoff-secret-key-1 ";

/// The size limit of the file: prefix, 64 digits and line end fit. A longer file is not a key file.
const MAX_BYTES: u64 = 128;

/// A secret Ed25519 key. The holder of the key is the peer.
///
/// `Debug` shows only the public key. The secret is wiped from memory when the last clone is dropped, and stored in a
/// file that only its owner may read ([`SecretKey::load_or_create`]).
#[derive(Clone)]
pub struct SecretKey(Arc<SigningKey>);

/// The operating system returned no random numbers. No key and no id was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot generate a key or an id: the operating system returned no random numbers: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

impl SecretKey {
    /// Generates a key from the operating system's random numbers.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut())?;
        Ok(Self::from_secret(&secret))
    }

    /// Creates the key with this secret. It is meant for simulations; all other callers use [`SecretKey::generate`].
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(secret)))
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        PublicKey::from_bytes(self.0.verifying_key().to_bytes())
    }

    /// Signs the message for this context. A signature made for one context is not valid in another.
    ///
    /// A context states the meaning of a signature, such as `b"holdoff council vote"`. It is not a secret.
    pub fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        Signature::from_bytes(self.sign_raw(&signed(context, message)))
    }

    /// Signs without a context of this crate, for the TLS handshake, which has its own.
    pub(crate) fn sign_raw(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    fn secret(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSecretKey(of {})", self.public())
    }
}

/// The reason why a key was not read or not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file could not be read. Nothing has changed.
    #[error("cannot read the key file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Users other than the owner may read the file, so the key may be known to them. It was not used.
    #[error(
        "other users may read the key file {path} (mode {mode:o}): run `chmod 600` on it, or create a new key if another user may have read it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The content of the file is not a key.
    #[error("{path} is not a key file: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The violated rule.
        why: &'static str,
    },
    /// The file exists already and is never overwritten. Nothing has changed.
    #[error("the key file {path} exists already and is never overwritten")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written; no file exists under that name.
    #[error("cannot write the key file {path}: {source}")]
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

impl SecretKey {
    /// Reads the key in this file, if only its owner may read the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        private(&file.metadata().map_err(failed)?)
            .map_err(|mode| KeyFileError::Exposed { path: path.to_owned(), mode })?;
        let mut text = Zeroizing::new(String::with_capacity(256));
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        let not = |why| KeyFileError::Invalid { path: path.to_owned(), why };
        let digits = text.strip_prefix(HEADER).ok_or_else(|| not("its header is missing"))?;
        let secret =
            hex::read(digits.trim_end()).map_err(|_| not("64 hexadecimal digits must follow its header"))?;
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
        let text = Zeroizing::new(format!("{HEADER}{}\n", Digits(self.secret())));
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

struct Digits<'a>(&'a [u8; 32]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_the_secret() {
        let key = SecretKey::from_secret(&[0xab; 32]);
        let shown = format!("{key:?} {key:#?}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert!(shown.contains(&key.public().to_string()));
    }

    #[test]
    fn generated_keys_differ() {
        assert_ne!(SecretKey::generate().unwrap().public(), SecretKey::generate().unwrap().public());
    }
}

#[cfg(all(test, unix))]
mod file_tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = SecretKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SecretKey::load(&path).unwrap().public(), key.public());
        assert_eq!(SecretKey::load_or_create(&path).unwrap().public(), key.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");

        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = SecretKey::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("640") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn save_never_overwrites_a_key_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (first, second) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        first.save(&path).unwrap();
        assert!(matches!(second.save(&path), Err(KeyFileError::Exists { .. })));
        assert_eq!(SecretKey::load(&path).unwrap().public(), first.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_invalid_key_file_is_rejected_without_showing_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in ["", "my password", "holdoff-secret-key-1 abc", &"holdoff-secret-key-1 0".repeat(9)] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let error = SecretKey::load(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Invalid { .. }), "{error}");
            assert!(!error.to_string().contains("password"));
        }
    }
}
