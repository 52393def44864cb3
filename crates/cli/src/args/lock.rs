//! `holdoff lock …`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueHint};
use holdoff_policy::{PolicySet, parse_duration};

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct LockArgs {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with = "data",
        help = "The store: sqlite:FILE, postgres://USER@HOST/DATABASE or kubernetes:NAMESPACE [default: \
                $HOLDOFF_STORE, then --data]"
    )]
    store: Option<String>,

    /// The directory of the SQLite file [default: holdoff in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,

    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with_all = ["store", "data"],
        help = "The daemon to ask; without it one is asked if the file says that a ledger keeps the locks [default: \
                $HOLDOFF_URL, then where the file says that it listens]"
    )]
    pub(crate) url: Option<String>,

    /// The namespace of the key
    #[arg(long, global = true, value_name = "NAME", default_value = PolicySet::DEFAULT_NAMESPACE)]
    pub(crate) namespace: String,

    #[command(subcommand)]
    pub(crate) command: LockCommand,
}

impl LockArgs {
    pub(crate) fn place(&self) -> PlaceArgs {
        PlaceArgs { store: self.store.clone(), data: self.data.clone() }
    }

    /// Returns whether the command asks a daemon. Only members of a ledger have access to its locks, so the command
    /// asks a daemon for them. An explicit `--store` selects that store instead.
    pub(crate) fn asks_daemon(&self, settings: &holdoff_lock::Settings) -> bool {
        self.url.is_some() || (settings.ledger().is_some() && self.store.is_none())
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum LockCommand {
    /// Run a command while holding a lock
    #[command(
        after_help = "Exit codes: the command's own, or 128 and the signal's number if a signal ended it; 75 if the \
                      lock was not free in time, 76 if it was lost while the command ran, 126 or 127 if the command \
                      cannot be run, 1 if the store failed.\n\nThe command finds the fencing token in \
                      HOLDOFF_TOKEN, and the key in HOLDOFF_KEY. If the lock is lost, the command and what it has \
                      started are ended: by SIGTERM, and by SIGKILL after the grace period."
    )]
    Run(LockRunArgs),

    /// List locks, by namespace and key
    List(LockListArgs),

    /// Show who holds a lock, and how many wait
    Show {
        /// What is locked
        key: String,
    },

    /// Take a lock from whoever holds it
    Release {
        /// What is locked
        key: String,

        /// Take it although it is another's: its token is stale from then on
        #[arg(long)]
        force: bool,
    },

    /// Begin another era, in which every token is above all before: after a ledger was restored from copies
    RaiseEra,
}

#[derive(clap::Args, Debug)]
pub(crate) struct LockRunArgs {
    /// What is locked
    pub(crate) key: String,

    /// For how long others are kept out if this process vanishes [default: lock.lease of the file, then 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) lease: Option<Duration>,

    /// How long to wait for the lock; 0s asks once [default: lock.wait of the file, then twice the lease]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the command may take to end when the lock is lost, before it is killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,

    /// The command, after --
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct LockListArgs {
    /// Only those that somebody holds
    #[arg(long)]
    pub(crate) held: bool,

    /// Only those whose key begins so
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,

    /// Those of all namespaces
    #[arg(long)]
    pub(crate) all: bool,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}
