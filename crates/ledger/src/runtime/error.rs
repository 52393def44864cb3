//! The errors of the runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdoff_disk::DiskError;
use holdoff_net::{NoRandomness, PublicKey};
use holdoff_paxos::Slot;
use holdoff_paxos::log::Rejection;
use holdoff_policy::{Class, ClassMap, Classify, Failure};
use serde::{Deserialize, Serialize};

use super::recovery::RecoveryRejection;
use crate::state::Divergence;

/// An error of a node: what failed, what is true now, and the next action.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the ledger open. Nothing has changed.
    #[error("another process has the ledger in {} open: stop it, or wait until it has ended", .0.display())]
    InUse(PathBuf),
    /// The ledger does not exist here. Nothing has changed.
    #[error(
        "there is no ledger `{name}` in {}: create it (`holdoff ledger init`), join it (`holdoff ledger join`), or use \
         another directory (--data)",
        data.display()
    )]
    UnknownLedger {
        /// The name of the ledger.
        name: String,
        /// The directory of the node.
        data: PathBuf,
    },
    /// The ledger already exists here. Nothing has changed.
    #[error("the ledger `{0}` already exists here: use it, or choose another namespace or directory")]
    AlreadyExists(String),
    /// The namespace is not valid. Nothing has changed.
    #[error("invalid ledger name {0:?}: use 1 to 64 letters, digits, `-` and `_`")]
    BadNamespace(String),
    /// Another release wrote the store. Nothing has changed.
    #[error(
        "the ledger's store has format {found}, and this release reads {known}: use the release that wrote it, or let the \
         node join again with an empty directory"
    )]
    Format {
        /// The format of the store.
        found: u64,
        /// The format that this release reads.
        known: u64,
    },
    /// The disk has failed. The node has stopped, and has reported nothing that it could not store.
    #[error(
        "the ledger's disk has failed: {0}. Start the node again: it continues from the stored records. If the disk is \
         lost or damaged, join again from an empty directory with the same key"
    )]
    Disk(#[from] DiskError),
    /// A decided entry does not fit the state of this node. The node has stopped.
    #[error(
        "the node has stopped, because a decided entry does not fit its state: {0}. Join again from an empty directory"
    )]
    Diverged(#[from] Divergence),
    /// A key file could not be read or written.
    #[error(transparent)]
    Key(Arc<holdoff_net::KeyFileError>),
    /// The operating system has returned no random numbers. Nothing has changed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// A link or the server has failed.
    #[error(transparent)]
    Net(Arc<holdoff_net::Error>),
    /// The address under which peers reach the node is not valid. Nothing has changed.
    #[error("invalid advertised address {0:?}: use at most 64 bytes without whitespace")]
    BadAddress(String),
    /// There is no leader, or the leader could not be reached. Nothing has changed.
    #[error(
        "no leader was found within {0:?}: start a majority of the voters, and check that they reach each other"
    )]
    NoLeader(Duration),
    /// The leader has not transferred leadership. Nothing has changed.
    #[error(transparent)]
    NotTransferred(#[from] TransferRejection),
    /// The ledger is not recovered. Nothing has changed.
    #[error(transparent)]
    NotRecovered(#[from] RecoveryRejection),
    /// An operator has recovered the ledger without this node. The node has stopped.
    #[error(
        "{peer} has recovered the ledger at index {start} without this node, whose later entries are not part of it: \
         move this node's file of the ledger away, and join again"
    )]
    GivenUp {
        /// The member that knows of the recovery.
        peer: PublicKey,
        /// The first index of the configuration that the recovery has founded.
        start: Slot,
    },
    /// The host of the node has stopped it, or stops. The outcome of pending transactions is unknown. A node that stops by
    /// itself reports [`Error::Disk`], [`Error::Diverged`] or [`Error::GivenUp`] instead.
    #[error(
        "the ledger's node has stopped, because its process stops or has stopped it: start the process again"
    )]
    Stopped,
    /// The transaction is larger than the limit of the node. Nothing has changed.
    #[error(
        "the transaction has {bytes} bytes, and the limit is {most}: split it, or raise `max_transaction` in [ledger]"
    )]
    TooLarge {
        /// The size of its goal.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The queue of the node is full. Nothing has changed.
    #[error("the ledger's node is overloaded: try again later")]
    Busy,
}

impl From<holdoff_net::Error> for Error {
    fn from(error: holdoff_net::Error) -> Self {
        Self::Net(Arc::new(error))
    }
}

impl From<holdoff_net::KeyFileError> for Error {
    fn from(error: holdoff_net::KeyFileError) -> Self {
        Self::Key(Arc::new(error))
    }
}

/// A submission may be repeated under its transaction's id.
impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Net(error) => error.classify(classes),
            Self::NoLeader(_) => Failure::new(Class::Timeout),
            Self::Busy => Failure::transient().local(),
            Self::InUse(_) => Failure::new(Class::Contended),
            Self::NotTransferred(why) => why.classify(classes),
            _ => Failure::permanent(),
        }
    }
}

/// The reason why the leader has not transferred leadership. It is part of the wire format: add new variants at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum TransferRejection {
    /// The leader is the only voter.
    #[error("there is no other voter: add one first (`holdoff ledger members add`)")]
    NoOtherVoter,
    /// The target is not one of the other voters.
    #[error("{0} is not one of the other voters: see `holdoff ledger members`")]
    NotAVoter(PublicKey),
    /// The caller has named no target, and the leader does not know yet how far the other voters are.
    #[error("no other voter has sent its status yet: retry")]
    NoVoterStatus,
    /// The log has rejected the transfer.
    #[error("{0}")]
    Log(#[source] Rejection),
}

/// A rejection passes, unless it is about the voters, which an operator must change.
impl Classify for TransferRejection {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::NoOtherVoter
            | Self::NotAVoter(_)
            | Self::Log(Rejection::NotAVoter(_) | Rejection::MoreThanOneVoter) => Failure::permanent(),
            Self::NoVoterStatus
            | Self::Log(
                Rejection::NotLeading(_)
                | Rejection::NotReady
                | Rejection::Changing
                | Rejection::Full
                | Rejection::Transferring
                | Rejection::TransferTimedOut,
            ) => Failure::transient(),
        }
    }
}

/// The reason why a node does not describe a ledger to another node. It is part of the wire format: add new variants at
/// the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub(super) enum DescribeRejection {
    /// The asking node is not a member. The operator must add it.
    #[error("this node's key is not a member of that ledger: add it first (`holdoff ledger members add`)")]
    NotAMember,
    /// The asked node has no such ledger.
    #[error("the asked node has no ledger with that name: check the name, or ask another member")]
    UnknownLedger,
    /// The asked node has not joined the ledger itself.
    #[error("the asked node has not joined that ledger yet: ask a member that has")]
    NotJoined,
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use holdoff_paxos::NodeId;

    use super::*;

    fn class(error: &Error) -> Class {
        error.classify(&ClassMap::default()).class()
    }

    #[test]
    fn a_rejected_transfer_keeps_its_reason_and_its_class() {
        let passing = [
            TransferRejection::NoVoterStatus,
            TransferRejection::Log(Rejection::Changing),
            TransferRejection::Log(Rejection::NotLeading(None)),
            TransferRejection::Log(Rejection::TransferTimedOut),
        ];
        let lasting = [
            TransferRejection::NoOtherVoter,
            TransferRejection::NotAVoter(PublicKey::from_bytes([1; 32])),
            TransferRejection::Log(Rejection::NotAVoter(NodeId(1))),
        ];
        for (reasons, expected) in [(&passing[..], Class::Transient), (&lasting, Class::Permanent)] {
            for reason in reasons {
                assert_eq!(class(&Error::from(*reason)), expected, "{reason}");
                let sent = postcard::to_allocvec(reason).unwrap();
                assert_eq!(postcard::from_bytes::<TransferRejection>(&sent).unwrap(), *reason);
            }
        }
        let error = Error::from(TransferRejection::Log(Rejection::Changing));
        assert_eq!(error.to_string(), Rejection::Changing.to_string());
        let source = error.source().and_then(|source| source.downcast_ref::<Rejection>());
        assert_eq!(source, Some(&Rejection::Changing));
    }

    #[test]
    fn a_node_without_random_numbers_fails_permanently_and_names_the_cause() {
        let error = Error::from(NoRandomness::from(getrandom::Error::UNSUPPORTED));
        assert_eq!(class(&error), Class::Permanent);
        assert!(error.source().is_some_and(<dyn std::error::Error>::is::<getrandom::Error>), "{error:?}");
    }

    #[test]
    fn a_stopped_node_does_not_start_again_by_itself() {
        assert_eq!(class(&Error::Stopped), Class::Permanent);
        let disk = Error::from(DiskError::new(std::io::Error::from(std::io::ErrorKind::StorageFull)));
        assert_eq!(class(&disk), Class::Permanent);
        assert!(disk.source().is_some_and(<dyn std::error::Error>::is::<DiskError>), "{disk:?}");
    }
}
