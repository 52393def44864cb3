//! Why a daemon does not run, and what to do about it.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Place;

/// Why a daemon does not run. Nothing was taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can be reached from elsewhere.
    #[error(
        "refusing to listen on {0}, which others can reach: there are no API tokens yet, and whoever reaches the \
         port can have requests made from here. Listen on a loopback address such as 127.0.0.1:7070, and put a \
         proxy in front of it that asks who is there"
    )]
    NotLoopback(SocketAddr),
    /// The address is not to be had.
    #[error("cannot listen on {address}: {source}. {}", listen_hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The directory cannot be made or written to.
    #[error("cannot keep work in {path}: {source}. Name a directory you may write to, by --data DIR", path = path.display())]
    Directory {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store cannot be used.
    #[error("{}{source}{}", place.preface(.source), place.hint(.source))]
    Store {
        /// Where it is.
        place: Place,
        /// What it said.
        source: holdoff_work::Error,
    },
    /// The locks cannot be used.
    #[error("cannot keep locks in {place}: {source}")]
    Locks {
        /// Where they are.
        place: Place,
        /// What was said.
        source: holdoff_lock::Error,
    },
    /// Traces cannot be sent there.
    #[cfg(feature = "otlp")]
    #[error(
        "cannot send traces: {0}; expected an address such as http://127.0.0.1:4318 in $OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    Traces(String),
    /// The system does not hand signals over.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
}

fn listen_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "Another holdoff may be running there already; name another port, or 0 for any that is free, by --listen"
        }
        std::io::ErrorKind::PermissionDenied => "Name a port above 1023 by --listen",
        _ => "Name another address by --listen",
    }
}
