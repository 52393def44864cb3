//! Becoming a member, by invitation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use holdoff_net::{Key, Link, LinkOptions};
use holdoff_paxos::{Configuration, Tally};

use super::folder::Folder;
use super::founding::{AcceptorAddress, own_key};
use super::invitation::{Invitation, Start};
use super::line::link;
use super::store::{About, Store};
use super::{Error, clock};
use crate::acceptor::{Reply, Request};
use crate::machine::{Acceptor, Machine};
use crate::{
    Ask, CouncilId, Decided, Device, Digest, Ed25519, Input, Options, PublicKey, Snapshot, Tell, node_id,
};

/// It is looked this often whether an invitation has come.
const LOOK: Duration = Duration::from_millis(500);
/// An acceptor that has not answered by then is asked again with the next look.
const PATIENCE: Duration = Duration::from_secs(3);

/// A device that is in no council yet.
#[derive(Debug)]
pub struct Joining {
    folder: Folder,
    store: Store,
    key: Key,
    public: PublicKey,
}

/// What a device has become a member of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Which council.
    pub council: CouncilId,
    /// Who has sent the invitation.
    pub by: PublicKey,
}

impl Joining {
    /// Begins in this directory, or goes on: the key is the same.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = Folder::make(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        if let Some(About { council, .. }) = store.about()? {
            return Err(Error::IsADevice { path: folder.path().to_owned(), council });
        }
        let (key, public) = own_key(&folder)?;
        Ok(Self { folder, store, key, public })
    }

    /// The key that a member must add.
    pub fn key(&self) -> PublicKey {
        self.public
    }

    /// Where this is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Waits for an invitation at these acceptors, and takes the state of the council over.
    ///
    /// Whoever knows a council's id can post a letter. Only what `by` has signed is taken, if that is given; else
    /// whatever a member of the council that it describes has signed, or anybody if that council has added this device.
    pub async fn wait<M: Machine>(
        &self,
        council: CouncilId,
        at: &[AcceptorAddress],
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
                clock::sleep(LOOK).await;
            }
        };
        let (by, snapshot) = clock::within(within, looking).await.map_err(|_| Error::NotInvited(within))?;
        self.store.enter(&About { council, key: self.public }, &snapshot)?;
        Ok(Joined { council, by })
    }

    async fn look<M: Machine>(
        &self,
        link: &Link,
        council: CouncilId,
        by: Option<PublicKey>,
        options: &LinkOptions,
    ) -> Option<(PublicKey, Snapshot)> {
        let tells = self.asked(link, council, Ask::Collect).await?.tells;
        let letters = tells.into_iter().filter_map(|tell| match tell {
            Tell::Mail(letters) => Some(letters),
            _ => None,
        });
        for (_, message) in letters.flatten() {
            let Some((sender, start)) = Invitation::read(&message, council, &self.public, &Ed25519) else {
                continue;
            };
            if by.is_some_and(|by| by != sender) {
                continue;
            }
            let snapshot = match start {
                Start::Here(snapshot) => Some(snapshot),
                Start::There(acceptors) => self.agreed(&acceptors, council, options).await,
            };
            let state = snapshot.and_then(|snapshot| Decided::<M>::restore(council, &snapshot));
            let Some(state) = state else { continue };
            if let Some(snapshot) = self.vouched(state, sender, options).await {
                return Some((sender, snapshot));
            }
        }
        None
    }

    /// The state as soon as it knows whoever sent the invitation, or whoever is invited.
    ///
    /// The acceptors' snapshot is of another moment than the letter: the sender may have come after it, or go by
    /// another key since. So what was decided after it is carried out, as far as need be.
    async fn vouched<M: Machine>(
        &self,
        state: Decided<M>,
        sender: PublicKey,
        options: &LinkOptions,
    ) -> Option<Snapshot> {
        let me = node_id(&self.public, self.store.life());
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
                let reply = self.asked(&link, council, Ask::Fetch { after }).await;
                let reply = reply.filter(|reply| reply.life == acceptor.life);
                for tell in reply.into_iter().flat_map(|reply| reply.tells) {
                    // It listens only: nothing of what it would do is done.
                    drop(device.step(0, &mut || 0, Input::Told { from: id, tell }));
                }
            }
            if device.state().applied() == after {
                return None;
            }
        }
    }

    async fn asked(&self, link: &Link, council: CouncilId, ask: Ask) -> Option<Reply> {
        let life = self.store.life();
        link.ask_within(PATIENCE, &Request::Ask { life, council, ask }).await.ok()
    }

    /// The snapshot that a majority of these keeps.
    async fn agreed(
        &self,
        acceptors: &[Acceptor],
        council: CouncilId,
        options: &LinkOptions,
    ) -> Option<Snapshot> {
        let configuration = Configuration::new(acceptors.iter().map(Acceptor::id)).ok()?;
        let mut kept: BTreeMap<Digest, (Tally, Snapshot)> = BTreeMap::new();
        for acceptor in acceptors {
            let Ok((link, _)) = link(&self.key, acceptor.key, &acceptor.address, options) else { continue };
            let reply = self.asked(&link, council, Ask::Snapshot).await;
            for tell in reply.filter(|reply| reply.life == acceptor.life).into_iter().flat_map(|it| it.tells)
            {
                let Tell::Snapshot(snapshot) = tell else { continue };
                let (tally, _) = kept.entry(snapshot.digest()).or_insert((Tally::default(), snapshot));
                tally.count(acceptor.id(), &configuration);
            }
        }
        kept.into_values().find(|(tally, _)| tally.is_quorum(&configuration)).map(|(_, snapshot)| snapshot)
    }
}
