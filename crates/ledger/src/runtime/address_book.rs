//! The address book: keys, ids and addresses of the members.

use std::collections::BTreeMap;

use holdoff_net::PublicKey;
use holdoff_paxos::NodeId;
use parking_lot::RwLock;

use super::roster::{LedgerMember, is_address};

/// The members of one ledger that this node knows, for connecting to them and for accepting their connections.
#[derive(Debug, Default)]
pub(super) struct AddressBook(RwLock<Addresses>);

#[derive(Debug, Default)]
struct Addresses {
    members: BTreeMap<PublicKey, LedgerMember>,
    keys: BTreeMap<NodeId, PublicKey>,
    announced: BTreeMap<PublicKey, AnnouncedAddress>,
}

/// The address that a member has announced itself, and the address in the roster that it replaces.
///
/// A member that has moved may be needed for the majority that commits its new address.
#[derive(Debug)]
struct AnnouncedAddress {
    address: String,
    replaces: String,
}

impl AddressBook {
    /// Replaces all members. An announced address counts until the roster has another one for the member.
    pub(super) fn replace(&self, members: impl IntoIterator<Item = (PublicKey, LedgerMember)>) {
        let mut members: BTreeMap<_, _> = members.into_iter().collect();
        let ids = members.iter().filter_map(|(key, member)| Some((member.id(key)?, *key)));
        let keys = ids.collect();
        let addresses = &mut *self.0.write();
        let mut announced = std::mem::take(&mut addresses.announced);
        announced.retain(|key, announced| match members.get_mut(key) {
            Some(member) if member.address == announced.replaces => {
                member.address.clone_from(&announced.address);
                true
            }
            _ => false,
        });
        *addresses = Addresses { members, keys, announced };
    }

    /// Records the address that a member has announced itself. Returns true if the member has moved.
    pub(super) fn announce(&self, key: &PublicKey, address: &str) -> bool {
        let has_moved = |member: &LedgerMember| member.address != address;
        // Nearly every announcement repeats the known address.
        if !is_address(address) || !self.member(key).is_some_and(|member| has_moved(&member)) {
            return false;
        }
        let Addresses { members, announced, .. } = &mut *self.0.write();
        let Some(member) = members.get_mut(key).filter(|member| has_moved(member)) else { return false };
        let before = std::mem::replace(&mut member.address, address.to_owned());
        let replaces = announced.remove(key).map_or(before, |earlier| earlier.replaces);
        announced.insert(*key, AnnouncedAddress { address: address.to_owned(), replaces });
        true
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

#[cfg(test)]
mod tests {
    use holdoff_net::SecretKey;

    use super::*;

    fn member(address: &str) -> LedgerMember {
        LedgerMember { name: "a".to_owned(), address: address.to_owned(), votes: true, incarnation: Some(1) }
    }

    #[test]
    fn an_announced_address_counts_until_the_roster_has_another() {
        let (book, key) = (AddressBook::default(), SecretKey::generate().unwrap().public());
        let address = || book.member(&key).map(|member| member.address);
        assert!(!book.announce(&key, "moved:1"), "a stranger's address is not recorded");
        book.replace([(key, member("old:1"))]);
        assert!(!book.announce(&key, "old:1") && !book.announce(&key, "not an address"));
        assert!(book.announce(&key, "moved:1") && !book.announce(&key, "moved:1"));
        assert_eq!(address().as_deref(), Some("moved:1"));
        book.replace([(key, member("old:1"))]);
        assert_eq!(address().as_deref(), Some("moved:1"), "the roster has not learned it");
        assert!(book.announce(&key, "moved:2"));
        book.replace([(key, member("old:1"))]);
        assert_eq!(address().as_deref(), Some("moved:2"));
        book.replace([(key, member("committed:1"))]);
        assert_eq!(address().as_deref(), Some("committed:1"), "the roster is newer");
        book.replace([(key, member("old:1"))]);
        assert_eq!(address().as_deref(), Some("old:1"));
    }
}
