//! Creates a council with its first acceptors.

use std::path::Path;

use holdoff_disk::DiskError;
use holdoff_net::{LinkOptions, PeerAddress, SecretKey};

use super::acceptor_link::{REQUEST_TIMEOUT, identify, link};
use super::folder::Folder;
use super::store::{DeviceIdentity, Store};
use super::{Council, Error};
use crate::acceptor::{LinkReply, LinkRequest};
use crate::machine::{AcceptorInfo, Machine, Members};
use crate::{AcceptorReply, AcceptorRequest, CouncilId, CouncilState, PublicKey};

/// Asks an acceptor for the incarnation of its store, which determines its node id.
pub async fn identify_acceptor(
    key: &SecretKey,
    address: &PeerAddress,
    options: &LinkOptions,
) -> Result<AcceptorInfo, Error> {
    let (link, _) = link(key, address.key, &address.address, options)?;
    let incarnation = identify(&link).await?;
    link.close().await;
    Ok(AcceptorInfo { key: address.key, incarnation, address: address.address.clone() })
}

impl Council<Members> {
    /// Creates a council in this directory, with its first member and these acceptors, and introduces it to the acceptors.
    pub async fn create(
        path: impl AsRef<Path>,
        name: &str,
        acceptors: &[PeerAddress],
        options: &LinkOptions,
    ) -> Result<CouncilId, Error> {
        let folder = Folder::make(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        if let Some(DeviceIdentity { council, .. }) = store.identity()? {
            return Err(Error::IsADevice { path: folder.path().to_owned(), council });
        }
        let (key, public) = own_key(&folder)?;
        let mut identified = Vec::new();
        for address in acceptors {
            identified.push(identify_acceptor(&key, address, options).await?);
        }
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(DiskError::new)?;
        let state = CouncilState::found(Members::create(public, name, identified)?, nonce);
        let council = state.council();
        for address in acceptors {
            introduce(&key, store.incarnation(), address, &state, options).await?;
        }
        store.initialize(&DeviceIdentity { council, key: public }, &state.snapshot())?;
        Ok(council)
    }
}

/// Introduces a council to an acceptor, so that the acceptor knows the members before it belongs to the council.
pub(super) async fn introduce<M: Machine>(
    key: &SecretKey,
    incarnation: u64,
    address: &PeerAddress,
    state: &CouncilState<M>,
    options: &LinkOptions,
) -> Result<(), Error> {
    tell(key, incarnation, address, (state.council(), state.introduction()), options).await
}

/// Sends an acceptor a request for a council, which must not be refused.
pub(super) async fn tell(
    key: &SecretKey,
    incarnation: u64,
    address: &PeerAddress,
    (council, request): (CouncilId, AcceptorRequest),
    options: &LinkOptions,
) -> Result<(), Error> {
    let (link, _) = link(key, address.key, &address.address, options)?;
    let request = LinkRequest::Council { incarnation, council, request };
    let reply: LinkReply = link.call_value_within(REQUEST_TIMEOUT, &request).await?;
    link.close().await;
    let refused = reply.replies.into_iter().find_map(|reply| match reply {
        AcceptorReply::Refused { why, .. } => Some(Error::Refused { acceptor: address.key, why }),
        _ => None,
    });
    refused.map_or(Ok(()), Err)
}

/// Returns the key of a device without a council. Repeated calls return the same key.
pub(super) fn own_key(folder: &Folder) -> Result<(SecretKey, PublicKey), Error> {
    let key = match folder.keys()?.first() {
        Some(public) => folder.key(public)?,
        None => folder.new_key()?,
    };
    let public = key.public();
    Ok((key, public))
}
