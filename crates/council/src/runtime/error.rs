//! What can go wrong around a device.

use std::path::PathBuf;

use crate::machine::Invalid;
use crate::{CouncilId, PublicKey};

/// What went wrong with a device, what is true then, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the device open. Nothing has changed.
    #[error(
        "another process has the device in {} open: wait until it has ended, or end it (`watch` runs until then)",
        .0.display()
    )]
    InUse(PathBuf),
    /// There is no device. Nothing has changed.
    #[error("there is no device of a council in {}: found a council there, or join one", .0.display())]
    NotADevice(PathBuf),
    /// There is a device already. Nothing has changed.
    #[error("{} is a device of council {council} already: use another directory", .path.display())]
    IsADevice {
        /// Where.
        path: PathBuf,
        /// Of which council.
        council: CouncilId,
    },
    /// A later release wrote the store. Nothing has changed.
    #[error(
        "the device's store has format {found}, and this release reads up to {known}: use a later release"
    )]
    Later {
        /// The format it has.
        found: u64,
        /// The latest that is known here.
        known: u64,
    },
    /// The disk has failed. The device has stopped, and has told nobody what it could not store.
    #[error(
        "the device's disk has failed: {0}. What was under way is taken up when it is started again; if the disk is \
         lost, let a member remove this device, and join again from an empty directory"
    )]
    Disk(String),
    /// A key could not be read or written.
    #[error(transparent)]
    Key(#[from] holdoff_net::KeyFileError),
    /// No random numbers.
    #[error(transparent)]
    NoRandomness(#[from] holdoff_net::NoRandomness),
    /// The device has none of its keys any more.
    #[error(
        "the secret of {0} is not among the device's keys: put its file back, or let a member remove this device \
         and join again from an empty directory"
    )]
    KeyIsGone(PublicKey),
    /// An acceptor cannot be reached, or is another one.
    #[error(transparent)]
    Net(#[from] holdoff_net::Error),
    /// It cannot be.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The device goes over to another key. Nothing was submitted.
    #[error("the device is going over to another key: wait until that has ended")]
    Rotating,
    /// Operations are under way, which a new key would end. Nothing was submitted.
    #[error("{0} operations are under way, which the old key has signed: wait until they have ended")]
    UnderWay(usize),
    /// The device has stopped, and does not know what became of what was under way: it is taken up at the next start.
    #[error("the device has stopped: {0}")]
    Stopped(String),
    /// Nobody has sent an invitation yet.
    #[error("no invitation has come within {0:?}")]
    NotInvited(std::time::Duration),
    /// As many things are asked of the device as it takes.
    #[error("the device is busy with as much as it takes: try again in a moment")]
    Busy,
}
