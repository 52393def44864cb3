//! The directory of one device: its store, and its keys, each in a file that only its owner may read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdoff_net::Key;

use super::Error;
use crate::PublicKey;

/// The directory of one device.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The device's directory, made if it is not there.
    pub(super) fn make(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Disk(format!("{}: {error}", path.display()));
        let folder = Self { path: path.to_owned() };
        holdoff_disk::folder::make(&folder.keys_path()).map_err(failed)?;
        Ok(folder)
    }

    /// The device's directory, if there is one.
    pub(super) fn find(path: &Path) -> Result<Self, Error> {
        let folder = Self { path: path.to_owned() };
        if folder.store_path().is_file() { Ok(folder) } else { Err(Error::NotADevice(path.to_owned())) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn store_path(&self) -> PathBuf {
        self.path.join("device.redb")
    }

    fn keys_path(&self) -> PathBuf {
        self.path.join("keys")
    }

    fn key_path(&self, key: &PublicKey) -> PathBuf {
        self.keys_path().join(format!("{key}.key"))
    }

    /// A new key, which is on disk when this returns.
    pub(super) fn new_key(&self) -> Result<Key, Error> {
        let key = Key::generate()?;
        key.save(self.key_path(&key.public()))?;
        Ok(key)
    }

    /// One of the device's keys.
    pub(super) fn key(&self, public: &PublicKey) -> Result<Key, Error> {
        let path = self.key_path(public);
        if !path.is_file() {
            return Err(Error::KeyIsGone(*public));
        }
        let key = Key::load(path)?;
        if key.public() == *public { Ok(key) } else { Err(Error::KeyIsGone(*public)) }
    }

    /// Which keys the device has.
    pub(super) fn keys(&self) -> Result<Vec<PublicKey>, Error> {
        let failed = |error: io::Error| Error::Disk(format!("{}: {error}", self.keys_path().display()));
        let mut keys = Vec::new();
        for entry in fs::read_dir(self.keys_path()).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let public = name.to_str().and_then(|name| name.strip_suffix(".key")).map(str::parse);
            if let Some(Ok(public)) = public {
                keys.push(public);
            }
        }
        Ok(keys)
    }

    /// Forgets a key that nothing is signed with any more.
    pub(super) fn forget_key(&self, public: &PublicKey) {
        if let Err(error) = fs::remove_file(self.key_path(public)) {
            tracing::warn!(%error, "a key that is not used any more could not be removed");
        }
    }
}
