//! The directory of one device: its store, and its keys, each in a file that only its owner may read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdoff_disk::DiskError;
use holdoff_net::SecretKey;

use super::Error;
use crate::PublicKey;

/// The directory of one device.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the device's directory, and creates it if it does not exist.
    pub(super) fn make(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| DiskError::at(path, error);
        let folder = Self { path: path.to_owned() };
        holdoff_disk::directory::create(&folder.keys_path()).map_err(failed)?;
        Ok(folder)
    }

    /// Opens the device's directory, if it contains a device.
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

    /// Creates a new key. It is on disk when this function returns.
    pub(super) fn new_key(&self) -> Result<SecretKey, Error> {
        let key = SecretKey::generate()?;
        key.save(self.key_path(&key.public()))?;
        Ok(key)
    }

    /// Loads a key of the device.
    pub(super) fn key(&self, public: &PublicKey) -> Result<SecretKey, Error> {
        let path = self.key_path(public);
        if !path.is_file() {
            return Err(Error::KeyMissing(*public));
        }
        let key = SecretKey::load(path)?;
        if key.public() == *public { Ok(key) } else { Err(Error::KeyMissing(*public)) }
    }

    /// Lists the keys of the device.
    pub(super) fn keys(&self) -> Result<Vec<PublicKey>, Error> {
        let failed = |error: io::Error| DiskError::at(&self.keys_path(), error);
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

    /// Deletes a key that is no longer used.
    pub(super) fn forget_key(&self, public: &PublicKey) {
        if let Err(error) = fs::remove_file(self.key_path(public)) {
            tracing::warn!(%error, key = %public.short(), "failed to delete an unused key");
        }
    }
}
