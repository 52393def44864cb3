//! Joins a council by invitation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use holdoff_driver::Core as _;
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use holdoff_paxos::{Configuration, Tally};

use super::acceptor_link::link;
use super::folder::Folder;
use super::founding::own_key;
use super::invitation::{Invitation, Start};
use super::store::{DeviceIdentity, Store};
use super::task::open_device;
use super::{Error, Settings, clock};
use crate::acceptor::{LinkReply, LinkRequest};
use crate::machine::{AcceptorInfo, Machine, Members};
use crate::{
    AcceptorReply, AcceptorRequest, CouncilId, CouncilSnapshot, CouncilState, Device, Digest, Ed25519, Input,
    NodeId, Options, PublicKey, RecoveredFrom,
};

/// The interval at which the device looks for an invitation.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of a request to an acceptor.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// A device without a council.
#[derive(Debug)]
pub struct Joining {
    folder: Folder,
    store: Store,
    key: SecretKey,
    public: PublicKey,
    /// The state of the device in a council that was recovered since.
    before: Option<RecoveredFrom>,
}

/// The council that a device has joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The council.
    pub council: CouncilId,
    /// The sender of the invitation.
    pub by: PublicKey,
}

impl Joining {
    /// Opens this directory. Repeated calls use the same key.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = Folder::make(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        if let Some(DeviceIdentity { council, .. }) = store.identity()? {
            return Err(Error::IsADevice { path: folder.path().to_owned(), council });
        }
        let (key, public) = own_key(&folder)?;
        Ok(Self { folder, store, key, public, before: None })
    }

    /// Opens the device in this directory, to follow its council to one that was recovered from it.
    pub fn open_recovered(path: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = Folder::find(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        let identity = store.identity()?.ok_or_else(|| Error::NotADevice(folder.path().to_owned()))?;
        let (device, key) = open_device::<Members>(&folder, &store, &identity, &Settings::default())?;
        let (state, public) = (device.state(), key.public());
        let before = RecoveredFrom { council: state.council(), slot: state.applied(), chain: state.chain() };
        Ok(Self { folder, store, key, public, before: Some(before) })
    }

    /// Returns whether this device may start from an invited state. A device of a council that was recovered must not have
    /// applied more slots than the recovered council contains.
    fn follows<M: Machine>(&self, invited: &CouncilState<M>) -> bool {
        let Some(before) = self.before else { return true };
        invited.founding().recovered.is_some_and(|recovered| {
            let is_ahead = recovered.slot > before.slot;
            recovered.council == before.council && (is_ahead || recovered == before)
        })
    }

    /// Returns the key that a member must add.
    pub fn key(&self) -> PublicKey {
        self.public
    }

    /// Returns the device's directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Waits for an invitation at these acceptors, and installs the state of the council.
    ///
    /// Any member of the council can post mail. With `by`, the device accepts only an invitation that this key
    /// has signed. Without `by`, it accepts an invitation if its sender is a member of the described council, or if that
    /// council has added this device. Cancel-safe: the mail stays at the acceptors.
    pub async fn wait<M: Machine>(
        &self,
        council: CouncilId,
        at: &[PeerAddress],
        by: Option<PublicKey>,
        within: Duration,
        options: &LinkOptions,
    ) -> Result<Joined, Error> {
        let mut links = Vec::new();
        for address in at {
            let (link, _) = link(&self.key, address.key, &address.address, options)?;
            links.push(link);
        }
        let looking = async {
            loop {
                for link in &links {
                    if let Some((by, snapshot)) = self.look::<M>(link, council, by, options).await {
                        return (by, snapshot);
                    }
                }
                clock::sleep(POLL_INTERVAL).await;
            }
        };
        let (by, snapshot) = clock::within(within, looking).await.map_err(|_| Error::NotInvited(within))?;
        self.store.initialize(&DeviceIdentity { council, key: self.public }, &snapshot)?;
        Ok(Joined { council, by })
    }

    async fn look<M: Machine>(
        &self,
        link: &Link,
        council: CouncilId,
        by: Option<PublicKey>,
        options: &LinkOptions,
    ) -> Option<(PublicKey, CouncilSnapshot)> {
        let replies = self.call(link, council, AcceptorRequest::Collect).await?.replies;
        let mail = replies.into_iter().filter_map(|reply| match reply {
            AcceptorReply::Mail(mail) => Some(mail),
            _ => None,
        });
        for (_, message) in mail.flatten() {
            let Some((sender, start)) = Invitation::read(&message, council, &self.public, &Ed25519) else {
                continue;
            };
            if by.is_some_and(|by| by != sender) {
                continue;
            }
            let snapshot = match start {
                Start::Snapshot(snapshot) => Some(snapshot),
                Start::Acceptors(acceptors, invited) => {
                    self.agreed(&acceptors, invited, council, options).await
                }
            };
            let state = snapshot.and_then(|snapshot| CouncilState::<M>::restore(council, &snapshot));
            let Some(state) = state.filter(|state| self.follows(state)) else { continue };
            if let Some(snapshot) = self.caught_up(state, sender, options).await {
                return Some((sender, snapshot));
            }
        }
        None
    }

    /// Applies decided slots until the state contains the sender of the invitation or this device.
    ///
    /// The acceptors' snapshot may be older or newer than the invitation: the sender may have been added after it, or have
    /// rotated its key since.
    async fn caught_up<M: Machine>(
        &self,
        state: CouncilState<M>,
        sender: PublicKey,
        options: &LinkOptions,
    ) -> Option<CouncilSnapshot> {
        let me = NodeId::derive(self.public.as_bytes(), self.store.incarnation());
        let signer = Box::new(self.key.clone());
        let mut device = Device::new(me, signer, Box::new(Ed25519), state, Options::default());
        loop {
            let (machine, after) = (device.state().machine(), device.state().applied());
            if machine.may_propose(&sender) || machine.may_propose(&self.public) {
                return Some(device.state().snapshot());
            }
            let (council, acceptors) = (device.state().council(), machine.acceptors().clone());
            for (id, acceptor) in acceptors {
                let Ok((link, _)) = link(&self.key, acceptor.key, &acceptor.address, options) else {
                    continue;
                };
                let reply = self.call(&link, council, AcceptorRequest::Fetch { after }).await;
                let reply = reply.filter(|reply| reply.incarnation == acceptor.incarnation);
                for reply in reply.into_iter().flat_map(|reply| reply.replies) {
                    // The device only learns here: its outputs are discarded.
                    drop(device.step(0, &mut || 0, Input::Reply { from: id, reply }));
                }
            }
            if device.state().applied() == after {
                return None;
            }
        }
    }

    async fn call(&self, link: &Link, council: CouncilId, request: AcceptorRequest) -> Option<LinkReply> {
        let incarnation = self.store.incarnation();
        link.call_value_within(REQUEST_TIMEOUT, &LinkRequest::Council { incarnation, council, request })
            .await
            .ok()
    }

    /// Returns the snapshot with this hash, or else the one that a majority of these acceptors has stored.
    async fn agreed(
        &self,
        acceptors: &[AcceptorInfo],
        invited: Digest,
        council: CouncilId,
        options: &LinkOptions,
    ) -> Option<CouncilSnapshot> {
        let configuration = Configuration::new(acceptors.iter().map(AcceptorInfo::id)).ok()?;
        let mut kept: BTreeMap<Digest, (Tally, CouncilSnapshot)> = BTreeMap::new();
        for acceptor in acceptors {
            let Ok((link, _)) = link(&self.key, acceptor.key, &acceptor.address, options) else { continue };
            let reply = self.call(&link, council, AcceptorRequest::Snapshot { offered: Some(invited) }).await;
            for reply in reply
                .filter(|reply| reply.incarnation == acceptor.incarnation)
                .into_iter()
                .flat_map(|it| it.replies)
            {
                let AcceptorReply::Snapshot { snapshot, .. } = reply else { continue };
                if snapshot.digest() == invited {
                    return Some(snapshot);
                }
                let (tally, _) = kept.entry(snapshot.digest()).or_insert((Tally::default(), snapshot));
                tally.count(acceptor.id(), &configuration);
            }
        }
        kept.into_values().find(|(tally, _)| tally.is_quorum(&configuration)).map(|(_, snapshot)| snapshot)
    }
}
