//! Errors that prevent a daemon from starting.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{InvalidToken, Place};

/// Why a daemon does not run. It has accepted nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not loopback, and no token is required.
    #[error(
        "refusing to listen on {0}, which others can reach: whoever reaches the port can have requests made from here. \
         Have everybody need an API token, by --require-token or `tokens = \"required\"` under [server]; or listen on a \
         loopback address such as 127.0.0.1:7070"
    )]
    NotLoopback(SocketAddr),
    /// The address is not loopback, and there is no TLS.
    #[error(
        "refusing to listen on {0} without TLS: tokens and payloads could be read on their way. Name a certificate by \
         --tls-cert FILE and --tls-key FILE, or say --insecure if a proxy in front has one"
    )]
    Plain(SocketAddr),
    /// The address is not loopback, and there is no token of scope `admin` for all namespaces.
    #[error(
        "refusing to listen on {address}: there is no API token of scope admin in {place}. Make one by `holdoff token \
         create --name ME --scope admin`, with the same --store or --data"
    )]
    NoAdmin {
        /// The address.
        address: SocketAddr,
        /// The store of the tokens.
        place: Place,
    },
    /// The certificate or its key is not usable.
    #[error("{path} cannot be used for TLS: {why}", path = path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The daemon cannot listen on the address.
    #[error("cannot listen on {address}: {source}. {}", listen_hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The directory cannot be created or written to.
    #[error("cannot keep work in {path}: {source}. Name a directory you may write to, by --data DIR", path = path.display())]
    Directory {
        /// The directory, or the file in it.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The store is not usable.
    #[error("{}{source}{}", place.preface(.source), place.hint(.source))]
    Store {
        /// The store's address.
        place: Place,
        /// The error of the store.
        source: holdoff_work::Error,
    },
    /// The locks are not usable.
    #[error("cannot keep locks in {place}: {source}")]
    Locks {
        /// The address of their store.
        place: Place,
        /// The error of the lock store.
        source: holdoff_lock::Error,
    },
    /// The settings name a ledger for the locks that this daemon does not have.
    #[error(
        "the locks shall be kept in the ledger `{0}` (`ledger` under [lock], $HOLDOFF_LOCK_LEDGER), and this daemon has no \
         such ledger. `holdoff ledger init --namespace {0}` makes one, and `holdoff ledger join --namespace {0} --member \
         KEY@HOST:PORT` joins one, each before the daemon is started and with the same --data"
    )]
    NoLedgerForLocks(String),
    /// The acceptor of councils cannot start.
    #[error(transparent)]
    Acceptor(#[from] holdoff_council::acceptor::StartError),
    /// The node of ledgers cannot start.
    #[error("the ledger's node cannot start: {0}")]
    Ledger(#[from] holdoff_ledger::runtime::Error),
    /// The daemon's own tokens and audit log cannot be read or written.
    #[error("API tokens and the audit log cannot be read or written: {source}")]
    Keep {
        /// Whether a retry may succeed.
        transient: bool,
        /// The error of the store.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The token is invalid. Nothing was stored.
    #[error(transparent)]
    Token(#[from] InvalidToken),
    /// The address for traces is invalid.
    #[cfg(feature = "otlp")]
    #[error(
        "cannot send traces: {0}; expected an address such as http://127.0.0.1:4318 in $OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    Traces(String),
    /// The operating system does not deliver signals to the process.
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
