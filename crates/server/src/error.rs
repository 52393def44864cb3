//! Errors that prevent a daemon from starting.

use std::net::SocketAddr;
use std::path::PathBuf;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::{InvalidToken, StoreUrl};

/// Why a daemon does not run. It has accepted nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not loopback, and no token is required.
    #[error(
        "refusing to listen on {0} without API tokens: any client that reaches the port could make this daemon send requests. \
         Require API tokens with --require-token or `tokens = \"required\"` under [server], or listen on a loopback \
         address such as 127.0.0.1:7070"
    )]
    NotLoopback(SocketAddr),
    /// The address is not loopback, and there is no TLS.
    #[error(
        "refusing to listen on {0} without TLS: API tokens and payloads would cross the network in clear text. Set a \
         certificate with --tls-cert FILE and --tls-key FILE, or set --insecure if a proxy terminates TLS"
    )]
    Plain(SocketAddr),
    /// The address is not loopback, and there is no token of scope `admin` for all namespaces.
    #[error(
        "refusing to listen on {address}: {store} has no API token of scope admin. Create one with `holdoff token create \
         --name ME --scope admin` and the same --store or --data"
    )]
    NoAdmin {
        /// The address.
        address: SocketAddr,
        /// The store of the tokens.
        store: StoreUrl,
    },
    /// The certificate or its key is not usable.
    #[error("{path} is not usable for TLS: {why}", path = path.display())]
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
    #[error("cannot write to {path}: {source}. Set a writable directory with --data DIR", path = path.display())]
    Directory {
        /// The directory, or the file in it.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The store is not usable.
    #[error("{}{source}{}", store.error_prefix(.source), store.error_hint(.source))]
    Store {
        /// The store's address.
        store: StoreUrl,
        /// The error of the store.
        source: holdoff_work::Error,
    },
    /// The locks are not usable.
    #[error("cannot open the locks in {store}: {source}")]
    Locks {
        /// The address of their store.
        store: StoreUrl,
        /// The error of the lock store.
        source: holdoff_lock::Error,
    },
    /// The settings name a ledger for the locks that this daemon does not have.
    #[error(
        "the locks are configured to be in the ledger `{0}` (`ledger` under [lock], $HOLDOFF_LOCK_LEDGER), but this daemon \
         has no such ledger. Before the daemon starts, create it with `holdoff ledger init --namespace {0}` or join it \
         with `holdoff ledger join --namespace {0} --member KEY@HOST:PORT`, and the same --data"
    )]
    NoLedgerForLocks(String),
    /// The acceptor of councils cannot start.
    #[error(transparent)]
    Acceptor(#[from] holdoff_council::acceptor::StartError),
    /// The node of ledgers cannot start.
    #[error("cannot start the ledger's node: {0}")]
    Ledger(#[from] holdoff_ledger::runtime::Error),
    /// The daemon's own tokens and audit log cannot be read or written.
    #[error("cannot access the API tokens and the audit log: {source}")]
    TokenStore {
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
        "cannot export traces: {0}; expected an address such as http://127.0.0.1:4318 in $OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    Traces(String),
    /// The operating system does not deliver signals to the process.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
}

/// A supervisor may start the daemon again.
impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Failure::new(Class::Contended)
            }
            Self::Listen { source, .. } | Self::Directory { source, .. } | Self::Signals(source) => {
                source.classify(classes)
            }
            Self::Store { source, .. } => source.classify(classes),
            Self::Locks { source, .. } => source.classify(classes),
            Self::Ledger(source) => source.classify(classes),
            Self::TokenStore { transient: true, .. } => Failure::transient(),
            _ => Failure::permanent(),
        }
    }
}

fn listen_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "Another daemon may already listen there; set another port with --listen, or port 0 for any free port"
        }
        std::io::ErrorKind::PermissionDenied => "Set a port above 1023 with --listen",
        _ => "Set another address with --listen",
    }
}
