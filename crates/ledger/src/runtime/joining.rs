//! How a new node finds its ledger: it asks the members that it knows.

use std::time::Duration;

use holdoff_net::{PeerAddress, PublicKey};
use holdoff_policy::Jitter;
use holdoff_retry::Backoff;

use super::Error;
use super::peers::Peers;
use super::roster::LedgerMember;
use super::store::LedgerInfo;
use super::wire::{Reply, Request};

/// The ledger and its members, as a member has described them.
pub(super) struct LearnedLedger {
    pub(super) info: LedgerInfo,
    pub(super) members: Vec<(PublicKey, LedgerMember)>,
}

/// Asks one contact after the other for the ledger with this name, until one answers.
pub(super) async fn learn(namespace: &str, contacts: &[PeerAddress], peers: &Peers) -> LearnedLedger {
    // A member must admit this node first, which takes as long as its operator needs.
    let mut backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(2), Jitter::Equal);
    loop {
        for contact in contacts {
            match ask(namespace, contact, peers).await {
                Ok(learned) => return learned,
                Err(error) => tracing::info!(
                    namespace, member = %contact.key, %error,
                    "failed to learn the ledger from a member: check that it has admitted this node's key"
                ),
            }
        }
        backoff.wait().await;
    }
}

async fn ask(namespace: &str, contact: &PeerAddress, peers: &Peers) -> Result<LearnedLedger, Error> {
    let link = peers.link(&contact.key, &contact.address)?;
    match link.call_value(&Request::DescribeLedger(namespace.to_owned())).await? {
        Reply::Ledger { info, incarnation, mut members } => {
            // The replying node is a member, even if its list does not contain it yet.
            let known = members.iter_mut().find(|(key, _)| *key == contact.key);
            match known {
                Some((_, member)) => member.incarnation = Some(incarnation),
                None => members.push((contact.key, unlisted(contact, incarnation))),
            }
            Ok(LearnedLedger { info, members })
        }
        Reply::Rejected(why) => Err(Error::Rejected(why)),
        other => Err(Error::Rejected(format!("unexpected reply from a member: {other:?}"))),
    }
}

/// Returns the entry of a member that is not on its own list.
fn unlisted(contact: &PeerAddress, incarnation: u64) -> LedgerMember {
    LedgerMember {
        name: String::new(),
        address: contact.address.clone(),
        votes: false,
        incarnation: Some(incarnation),
    }
}
