//! The errors of a device.

use std::path::PathBuf;
use std::sync::Arc;

use holdoff_disk::DiskError;
use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::machine::InvalidOperation;
use crate::{CouncilId, PublicKey, RequestRefusal, Slot};

/// The error of a device. Each variant says whether anything has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the device open. Nothing has changed.
    #[error(
        "the device in {} is open in another process: stop that process (`watch` runs until it is stopped) or wait",
        .0.display()
    )]
    InUse(PathBuf),
    /// The directory contains no device. Nothing has changed.
    #[error("{} contains no device: create a council in it, or join one", .0.display())]
    NotADevice(PathBuf),
    /// The directory already contains a device. Nothing has changed.
    #[error("{} already contains a device of council {council}: use another directory", .path.display())]
    IsADevice {
        /// The directory.
        path: PathBuf,
        /// The council of the device.
        council: CouncilId,
    },
    /// A newer release wrote the store. Nothing has changed.
    #[error(
        "the device's store has format {found}, and this release reads format {known}: use the release that wrote it"
    )]
    Format {
        /// The format of the store.
        found: u64,
        /// The format that this release reads.
        known: u64,
    },
    /// The disk has failed. The device has stopped, and has sent no message that depends on unstored records.
    #[error(
        "the device's disk has failed: {0}. The device continues its pending operations when it is opened again; if \
         the disk is lost, let a member remove this device, and join again from an empty directory"
    )]
    Disk(#[from] DiskError),
    /// A key file cannot be read or written.
    #[error(transparent)]
    Key(#[from] holdoff_net::KeyFileError),
    /// The system provides no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] holdoff_net::NoRandomness),
    /// The secret key of the device is missing.
    #[error(
        "the secret key of {0} is missing in the device's directory: restore its file, or let a member remove this \
         device and join again from an empty directory"
    )]
    KeyMissing(PublicKey),
    /// An acceptor cannot be reached, or has another key.
    #[error(transparent)]
    Net(#[from] holdoff_net::Error),
    /// An acceptor refuses the council. The council does not count on it.
    #[error(
        "acceptor {} refuses the council: {why}. If another client has introduced the council there, start the acceptor \
         with an empty store, or use another acceptor", .acceptor.short()
    )]
    Refused {
        /// The acceptor.
        acceptor: PublicKey,
        /// The reason.
        why: RequestRefusal,
    },
    /// A majority of the acceptors answers, so the council can continue. Nothing has changed.
    #[error(
        "a majority of the acceptors answers: replace the others with `acceptors remove` and `acceptors add`"
    )]
    HasMajority,
    /// A remaining acceptor has deleted slots that this device has not applied. The council is not recovered.
    #[error(
        "this device has applied slot {applied}, and an acceptor has deleted the slots up to {floor}: recover the council on \
         a device that has applied them"
    )]
    Behind {
        /// The last slot that the device has applied.
        applied: Slot,
        /// The last slot that the acceptor has deleted.
        floor: Slot,
    },
    /// The operation is impossible.
    #[error(transparent)]
    Invalid(#[from] InvalidOperation),
    /// A key rotation is in progress. Nothing was submitted.
    #[error("a key rotation is in progress: submit again when it has ended")]
    Rotating,
    /// Operations are pending, which a rotation would end. Nothing was submitted.
    #[error("{0} operations signed by the old key are pending: rotate when they have ended")]
    OperationsPending(usize),
    /// The device has stopped. The outcome of its pending operations is unknown; it continues them at the next start.
    #[error("the device has stopped: {0}")]
    Stopped(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// No invitation has arrived.
    #[error(
        "no invitation has arrived within {0:?}: check the council's id, let a member of it add the key, and join again"
    )]
    NotInvited(std::time::Duration),
    /// The device has reached its limit of concurrent requests. Nothing has changed.
    #[error("the device has reached its limit of concurrent requests: retry later")]
    Busy,
}

impl Error {
    /// Creates the error of a device that has stopped for this reason.
    pub(super) fn stopped(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stopped(Arc::from(why.into()))
    }
}

/// An operation may be repeated under its id.
impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Net(error) => error.classify(classes),
            Self::Busy | Self::Rotating | Self::OperationsPending(_) => Failure::transient().local(),
            Self::NotInvited(_) => Failure::new(Class::Timeout),
            Self::InUse(_) => Failure::new(Class::Contended),
            _ => Failure::permanent(),
        }
    }
}
