//! A new council, and the acceptors it begins with.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use holdoff_net::{Key, LinkOptions};

use super::folder::Folder;
use super::line::{link, who};
use super::store::{About, Store};
use super::{Council, Error};
use crate::machine::{Acceptor, Members};
use crate::{CouncilId, Decided, PublicKey};

/// Who an acceptor is and where it listens, as it says when it starts: `KEY@HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptorAddress {
    /// Who it is.
    pub key: PublicKey,
    /// Where it listens.
    pub address: String,
}

/// Why a text is not an acceptor's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an acceptor is named as KEY@HOST:PORT, as it says when it starts: {0}")]
pub struct BadAddress(String);

impl FromStr for AcceptorAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (key, address) =
            text.split_once('@').ok_or_else(|| BadAddress("there is no @ in it".to_owned()))?;
        let key: PublicKey = key.parse().map_err(|error| BadAddress(format!("{error}")))?;
        let port = address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(1..))) if !host.is_empty() => Ok(Self { key, address: address.to_owned() }),
            _ => Err(BadAddress("after the @ there must be a host, a colon and a port".to_owned())),
        }
    }
}

impl fmt::Display for AcceptorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.address)
    }
}

/// Asks an acceptor which life its storage has: that is who it is, from then on.
pub async fn meet(key: &Key, address: &AcceptorAddress, options: &LinkOptions) -> Result<Acceptor, Error> {
    let (link, _) = link(key, address.key, &address.address, options)?;
    let life = who(&link).await?;
    link.close().await;
    Ok(Acceptor { key: address.key, life, address: address.address.clone() })
}

impl Council<Members> {
    /// Founds a council in this directory, with its first member and these acceptors. They need not know of it.
    pub async fn found(
        path: impl AsRef<Path>,
        name: &str,
        acceptors: &[AcceptorAddress],
        options: &LinkOptions,
    ) -> Result<CouncilId, Error> {
        let folder = Folder::make(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        if let Some(About { council, .. }) = store.about()? {
            return Err(Error::IsADevice { path: folder.path().to_owned(), council });
        }
        let (key, public) = own_key(&folder)?;
        let mut met = Vec::new();
        for address in acceptors {
            met.push(meet(&key, address, options).await?);
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| Error::Disk(error.to_string()))?;
        let council = CouncilId(id);
        let state = Decided::new(council, Members::found(public, name, met)?);
        store.enter(&About { council, key: public }, &state.snapshot())?;
        Ok(council)
    }
}

/// The key of a device that is in no council yet: the same however often one tries.
pub(super) fn own_key(folder: &Folder) -> Result<(Key, PublicKey), Error> {
    let key = match folder.keys()?.first() {
        Some(public) => folder.key(public)?,
        None => folder.new_key()?,
    };
    let public = key.public();
    Ok((key, public))
}
