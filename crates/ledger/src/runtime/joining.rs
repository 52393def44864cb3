//! How a new node joins: it asks the members that it knows for the ledger, stores the answer, and starts.

use std::time::Duration;

use holdoff_net::{PeerAddress, PublicKey};
use holdoff_policy::Jitter;
use holdoff_retry::Backoff;

use super::Error;
use super::error::DescribeRejection;
use super::peers::Peers;
use super::roster::LedgerMember;
use super::store::LedgerInfo;
use super::wire::{Reply, Request};

/// The ledger and its members, as a member has described them.
pub(super) struct DescribedLedger {
    pub(super) info: LedgerInfo,
    pub(super) members: Vec<(PublicKey, LedgerMember)>,
}

/// Asks one contact after the other for the ledger with this name, until one answers.
pub(super) async fn ask(namespace: &str, contacts: &[PeerAddress], peers: &Peers) -> DescribedLedger {
    // A member must add this node first, which takes as long as its operator needs.
    let mut backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(2), Jitter::Equal);
    loop {
        for contact in contacts {
            match describe(namespace, contact, peers).await {
                Ok(described) => return described,
                Err(error) => tracing::info!(
                    namespace, member = %contact.key, %error,
                    "failed to learn the ledger from a member: a member refuses this node until it has added its key"
                ),
            }
        }
        backoff.wait().await;
    }
}

async fn describe(
    namespace: &str,
    contact: &PeerAddress,
    peers: &Peers,
) -> Result<DescribedLedger, DescribeError> {
    let link = peers.link(&contact.key, &contact.address)?;
    match link.call_value(&Request::DescribeLedger(namespace.to_owned())).await? {
        Reply::Ledger { info, incarnation, mut members } => {
            // The replying node is a member, even if its list does not contain it yet.
            let known = members.iter_mut().find(|(key, _)| *key == contact.key);
            match known {
                Some((_, member)) => member.incarnation = Some(incarnation),
                None => members.push((contact.key, unlisted(contact, incarnation))),
            }
            Ok(DescribedLedger { info, members })
        }
        Reply::NotDescribed(why) => Err(why.into()),
        other => Err(DescribeError::UnexpectedReply(other)),
    }
}

/// The reason why a contact has not described the ledger. The node asks again in each case.
#[derive(Debug, thiserror::Error)]
enum DescribeError {
    #[error(transparent)]
    Link(#[from] Error),
    #[error(transparent)]
    Call(#[from] holdoff_net::Error),
    #[error(transparent)]
    Rejected(#[from] DescribeRejection),
    #[error("unexpected reply from a member: {0:?}")]
    UnexpectedReply(Reply),
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
