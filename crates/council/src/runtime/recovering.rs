//! Recovers a council that has lost a majority of its acceptors for good.
//!
//! A lost majority may have decided what no survivor knows, so nothing but an operator's act can continue. The act founds a
//! new council from the longest history that this device and the surviving acceptors know. The id of the new council commits
//! to the old council and to the hash of this history, so that the two never mix.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use holdoff_disk::DiskError;
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use holdoff_paxos::slot::Vote;

use super::acceptor_link::{REQUEST_TIMEOUT, link};
use super::folder::Folder;
use super::founding::{identify_acceptor, introduce, tell};
use super::invitation::Invitation;
use super::store::{DeviceIdentity, Store};
use super::task::open_device;
use super::{Council, Error, Settings, new_id};
use crate::acceptor::{LinkReply, LinkRequest};
use crate::device::is_majority;
use crate::machine::{AcceptorInfo, Machine, Members};
use crate::{
    AcceptorReply, AcceptorRequest, Closing, CouncilId, CouncilState, Record, RecoveredFrom, RequestRefusal,
    Slot, SlotValue,
};

/// The result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredCouncil {
    /// The new council.
    pub council: CouncilId,
    /// The history from which it continues.
    pub from: RecoveredFrom,
    /// The number of its last slots that a survivor has accepted, and that no survivor knows to be decided.
    pub unproven: u64,
    /// The acceptors that did not answer. Decisions that only they know are lost.
    pub lost: Vec<AcceptorInfo>,
}

impl Council<Members> {
    /// Founds a new council with these acceptors, from the history that this device and the remaining acceptors of its
    /// council know. The device must not be open; from now on it belongs to the new council, and posts an invitation to every
    /// other member.
    ///
    /// Fails if a majority of the acceptors answers, and if a remaining acceptor has deleted slots that this device has not
    /// applied. The remaining acceptors are closed: they take no further part in the old council. A recovery that has failed
    /// can be repeated.
    pub async fn recover(
        path: impl AsRef<Path>,
        acceptors: &[PeerAddress],
        options: &LinkOptions,
    ) -> Result<RecoveredCouncil, Error> {
        let folder = Folder::find(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        let identity = store.identity()?.ok_or_else(|| Error::NotADevice(folder.path().to_owned()))?;
        let (device, key) = open_device::<Members>(&folder, &store, &identity, &Settings::default())?;
        let (mut state, me) = (device.state().clone(), key.public());
        let survivors = Survivors::find(&state, &key, store.incarnation(), options).await?;
        survivors.close(&state, &key).await?;
        let votes = survivors.votes(&state).await?;
        let unproven = state.adopt(&votes, &crate::Ed25519);
        if !state.machine().may_propose(&me) {
            return Err(
                crate::machine::InvalidOperation::because("you are not a member of this council").into()
            );
        }
        let mut identified = Vec::new();
        for address in acceptors {
            identified.push(identify_acceptor(&key, address, options).await?);
        }
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(DiskError::new)?;
        let from = RecoveredFrom { council: state.council(), slot: state.applied(), chain: state.chain() };
        let state = state.recover(state.machine().with_acceptors(identified)?, nonce);
        for address in acceptors {
            introduce(&key, store.incarnation(), address, &state, options).await?;
            // An invitation to a large state refers to the snapshot.
            let request = AcceptorRequest::Compact { snapshot: state.snapshot(), certificate: Vec::new() };
            tell(&key, store.incarnation(), address, (state.council(), request), options).await?;
        }
        let mut invitations = Vec::new();
        for to in state.machine().member_keys().into_iter().filter(|to| *to != me) {
            let mail = Invitation::mail(&state, to, &key).map_err(DiskError::new)?;
            invitations.push(Record::<()>::Mail { id: new_id()?, mail });
        }
        store.put_all(invitations)?;
        store.initialize(&DeviceIdentity { council: state.council(), key: me }, &state.snapshot())?;
        Ok(RecoveredCouncil { council: state.council(), from, unproven, lost: survivors.lost })
    }
}

/// The acceptors of a council that still answer.
struct Survivors {
    links: Vec<Link>,
    lost: Vec<AcceptorInfo>,
    council: CouncilId,
    incarnation: u64,
}

impl Survivors {
    async fn find(
        state: &CouncilState<Members>,
        key: &SecretKey,
        incarnation: u64,
        options: &LinkOptions,
    ) -> Result<Self, Error> {
        let (links, lost, council) = (Vec::new(), Vec::new(), state.council());
        let (mut found, mut answered) = (Self { links, lost, council, incarnation }, BTreeSet::new());
        for acceptor in state.machine().acceptors().values() {
            let link = link(key, acceptor.key, &acceptor.address, options)?.0;
            let reply = found.ask(&link, AcceptorRequest::Fetch { after: state.applied() }).await;
            if reply.is_ok_and(|reply| reply.incarnation == acceptor.incarnation) {
                answered.insert(acceptor.id());
                found.links.push(link);
            } else {
                found.lost.push(acceptor.clone());
            }
        }
        let is_decidable = state.configuration().is_some_and(|these| is_majority(&answered, &these));
        if is_decidable { Err(Error::HasMajority) } else { Ok(found) }
    }

    async fn ask(&self, link: &Link, request: AcceptorRequest) -> Result<LinkReply, holdoff_net::Error> {
        let Self { council, incarnation, .. } = *self;
        let request = LinkRequest::Council { incarnation, council, request };
        link.call_value_within(REQUEST_TIMEOUT, &request).await
    }

    /// Closes the survivors. From then on they accept no value, so that what they report is final.
    async fn close(&self, state: &CouncilState<Members>, key: &SecretKey) -> Result<(), Error> {
        for link in &self.links {
            // A survivor that has missed changes of the members may not know this one.
            let replies = self.ask(link, AcceptorRequest::Fetch { after: state.applied() }).await?.replies;
            let known = replies.iter().find_map(|reply| match reply {
                AcceptorReply::Report(report) => Some(report.access),
                AcceptorReply::Refused { why: RequestRefusal::NotMember { access, .. }, .. } => Some(*access),
                _ => None,
            });
            let changes = state.access_after(known.unwrap_or_default());
            self.ask(link, AcceptorRequest::Access { changes }).await?;
            let closed = self.ask(link, AcceptorRequest::Close(Closing::sign(self.council, key))).await?;
            if let Some(AcceptorReply::Refused { why, .. }) = closed.replies.first() {
                return Err(Error::Refused { acceptor: link.peer().key, why: *why });
            }
        }
        Ok(())
    }

    /// Returns the votes of the survivors after the last slot of this state.
    async fn votes(
        &self,
        state: &CouncilState<Members>,
    ) -> Result<BTreeMap<Slot, Vec<Vote<SlotValue>>>, Error> {
        let mut votes: BTreeMap<Slot, Vec<_>> = BTreeMap::new();
        for link in &self.links {
            let mut after = state.applied();
            loop {
                let before = after;
                for reply in self.ask(link, AcceptorRequest::Fetch { after }).await?.replies {
                    match reply {
                        AcceptorReply::History { votes: more, .. } => {
                            after = more.last().map_or(after, |(slot, _)| *slot);
                            for (slot, vote) in more {
                                votes.entry(slot).or_default().push(vote);
                            }
                        }
                        AcceptorReply::Report(report) if report.floor > before => {
                            return Err(Error::Behind { applied: state.applied(), floor: report.floor });
                        }
                        _ => {}
                    }
                }
                if after == before {
                    break;
                }
            }
        }
        Ok(votes)
    }
}
