//! Where everybody is.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use holdoff_net::PublicKey;
use holdoff_paxos::NodeId;

use super::roster::Member;

/// The members of one ledger as far as they are known here, for whoever must find or let in somebody.
#[derive(Debug, Default)]
pub(super) struct Book(RwLock<Pages>);

#[derive(Debug, Default)]
struct Pages {
    members: BTreeMap<PublicKey, Member>,
    keys: BTreeMap<NodeId, PublicKey>,
}

impl Book {
    /// These, and nobody else.
    pub(super) fn write(&self, members: impl IntoIterator<Item = (PublicKey, Member)>) {
        let members: BTreeMap<_, _> = members.into_iter().collect();
        let ids = members.iter().filter_map(|(key, member)| Some((member.id(key)?, *key)));
        let keys = ids.collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Pages { members, keys };
    }

    /// Whether this is somebody.
    pub(super) fn has(&self, key: &PublicKey) -> bool {
        self.read(|pages| pages.members.contains_key(key))
    }

    /// Whose id this is.
    pub(super) fn key(&self, id: NodeId) -> Option<PublicKey> {
        self.read(|pages| pages.keys.get(&id).copied())
    }

    /// Whose id this is, and where it is.
    pub(super) fn find(&self, id: NodeId) -> Option<(PublicKey, String)> {
        self.read(|pages| {
            let key = pages.keys.get(&id)?;
            Some((*key, pages.members.get(key)?.address.clone()))
        })
    }

    /// What is known of somebody.
    pub(super) fn member(&self, key: &PublicKey) -> Option<Member> {
        self.read(|pages| pages.members.get(key).cloned())
    }

    /// Everybody.
    pub(super) fn members(&self) -> Vec<(PublicKey, Member)> {
        self.read(|pages| pages.members.iter().map(|(key, member)| (*key, member.clone())).collect())
    }

    fn read<T>(&self, look: impl FnOnce(&Pages) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
