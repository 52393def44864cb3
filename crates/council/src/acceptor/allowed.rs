//! Access control of an acceptor: the keys whose requests it answers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdoff_net::AllowList;
use parking_lot::RwLock;

use crate::PublicKey;

/// The clients that may send requests to an acceptor.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Allowed {
    /// Every client that can reach the acceptor. It can found councils, and take part in those of which it is a member.
    Anyone,
    /// The clients whose keys are listed in this file, one key on each line. A `#` starts a comment.
    File(PathBuf),
}

impl Allowed {
    /// The word that permits every client, used in place of a file name.
    pub const ANYONE: &str = "anyone";

    /// Parses a setting: the word [`ANYONE`](Self::ANYONE), or else the name of a file.
    pub fn read(text: &str) -> Self {
        if text == Self::ANYONE { Self::Anyone } else { Self::File(text.into()) }
    }
}

/// The error for a list of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the key list {path}: {why}")]
pub struct BadKeyList {
    path: String,
    why: String,
}

/// The interval at which the acceptor reads the list again.
const AGAIN: Duration = Duration::from_secs(2);
/// The maximum size of a list, in bytes.
const MAX_LIST: u64 = 1024 * 1024;

/// A list of keys that may change while the acceptor uses it.
#[derive(Clone, Debug)]
pub(super) struct KeyList {
    path: PathBuf,
    keys: Arc<RwLock<HashSet<PublicKey>>>,
}

impl KeyList {
    pub(super) fn open(path: &Path) -> Result<Self, BadKeyList> {
        let keys = Arc::new(RwLock::new(read(path)?));
        Ok(Self { path: path.to_owned(), keys })
    }

    pub(super) fn allow(&self) -> AllowList {
        let keys = self.keys.clone();
        AllowList::when(move |key| keys.read().contains(key))
    }

    /// Applies each change of the file, until the task is dropped. An unusable file leaves the previous list
    /// active, and the acceptor logs the problem once.
    pub(super) async fn follow(self) {
        let mut complained = None;
        loop {
            tokio::time::sleep(AGAIN).await;
            let path = self.path.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            match found {
                Ok(keys) => {
                    complained = None;
                    let mut known = self.keys.write();
                    if *known != keys {
                        tracing::info!(keys = keys.len(), "applied the changed key list of the acceptor");
                        *known = keys;
                    }
                }
                Err(bad) => {
                    let bad = bad.to_string();
                    if complained.as_ref() != Some(&bad) {
                        tracing::warn!(
                            error = bad,
                            "ignored an unusable key list; the previous list stays active"
                        );
                        complained = Some(bad);
                    }
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<HashSet<PublicKey>, BadKeyList> {
    let bad = |why: String| BadKeyList { path: path.display().to_string(), why };
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > MAX_LIST {
        return Err(bad(format!("it has {size} bytes; the limit is {MAX_LIST}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let mut keys = HashSet::new();
    for (number, line) in text.lines().enumerate() {
        let key = line.split('#').next().unwrap_or_default().trim();
        if !key.is_empty() {
            let wrong = |error| bad(format!("line {}: {error}", number + 1));
            keys.insert(key.parse().map_err(wrong)?);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use holdoff_net::SecretKey;

    use super::*;

    #[test]
    fn a_key_list_has_one_key_per_line_and_comments() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let [ann, bob, eve] = [1, 2, 3].map(|secret| SecretKey::from_secret(&[secret; 32]).public());
        std::fs::write(&path, format!("# who may ask\n\n{ann} # Ann\n  {bob}\n")).unwrap();
        let allow = KeyList::open(&path).unwrap().allow();
        assert!(allow.allows(&ann) && allow.allows(&bob) && !allow.allows(&eve));
        std::fs::write(&path, format!("{ann}\n{}x\n", &bob.to_string()[1..])).unwrap();
        let bad = KeyList::open(&path).unwrap_err().to_string();
        assert!(bad.contains("line 2: not a public key"), "{bad}");
        assert!(KeyList::open(&directory.path().join("none")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_key_list_is_applied_and_an_invalid_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let [ann, bob] = [1, 2].map(|secret| SecretKey::from_secret(&[secret; 32]).public());
        std::fs::write(&path, ann.to_string()).unwrap();
        let list = KeyList::open(&path).unwrap();
        let allow = list.allow();
        let following = tokio::spawn(list.follow());
        std::fs::write(&path, bob.to_string()).unwrap();
        while !allow.allows(&bob) {
            tokio::time::sleep(AGAIN).await;
        }
        assert!(!allow.allows(&ann));
        std::fs::write(&path, "nonsense").unwrap();
        tokio::time::sleep(AGAIN * 3).await;
        assert!(allow.allows(&bob), "an unreadable list does not replace the current one");
        following.abort();
    }
}
