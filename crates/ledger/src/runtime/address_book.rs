//! The address book: keys, ids and addresses of the members.

use std::collections::BTreeMap;

use holdoff_net::PublicKey;
use holdoff_paxos::NodeId;
use parking_lot::RwLock;

use super::roster::LedgerMember;

/// The members of one ledger that this node knows, for connecting to them and for accepting their connections.
#[derive(Debug, Default)]
pub(super) struct AddressBook(RwLock<Addresses>);

#[derive(Debug, Default)]
struct Addresses {
    members: BTreeMap<PublicKey, LedgerMember>,
    keys: BTreeMap<NodeId, PublicKey>,
}

impl AddressBook {
    /// Replaces all members.
    pub(super) fn replace(&self, members: impl IntoIterator<Item = (PublicKey, LedgerMember)>) {
        let members: BTreeMap<_, _> = members.into_iter().collect();
        let ids = members.iter().filter_map(|(key, member)| Some((member.id(key)?, *key)));
        let keys = ids.collect();
        *self.0.write() = Addresses { members, keys };
    }

    /// Returns true if the key is a member's.
    pub(super) fn contains(&self, key: &PublicKey) -> bool {
        self.read(|addresses| addresses.members.contains_key(key))
    }

    /// Returns the key of the member with this id.
    pub(super) fn key(&self, id: NodeId) -> Option<PublicKey> {
        self.read(|addresses| addresses.keys.get(&id).copied())
    }

    /// Returns the key and the address of the member with this id.
    pub(super) fn find(&self, id: NodeId) -> Option<(PublicKey, String)> {
        self.read(|addresses| {
            let key = addresses.keys.get(&id)?;
            Some((*key, addresses.members.get(key)?.address.clone()))
        })
    }

    /// Returns the member with this key.
    pub(super) fn member(&self, key: &PublicKey) -> Option<LedgerMember> {
        self.read(|addresses| addresses.members.get(key).cloned())
    }

    /// Returns all members.
    pub(super) fn members(&self) -> Vec<(PublicKey, LedgerMember)> {
        self.read(|addresses| addresses.members.iter().map(|(key, member)| (*key, member.clone())).collect())
    }

    fn read<T>(&self, query: impl FnOnce(&Addresses) -> T) -> T {
        query(&self.0.read())
    }
}
