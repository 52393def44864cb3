//! `holdoff council …`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueHint};
use holdoff_council::runtime::AcceptorAddress;
use holdoff_council::{CouncilId, OperationId, PublicKey};
use holdoff_policy::parse_duration;

#[derive(clap::Args, Debug)]
pub(crate) struct CouncilArgs {
    /// The device's directory [default: holdoff/council in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// How long to try
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) deadline: Duration,

    /// The operation's id, 32 hexadecimal digits: however often it is sent, it happens at most once
    /// [default: a new one]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) id: Option<OperationId>,

    #[command(subcommand)]
    pub(crate) command: CouncilCommand,
}

#[derive(Subcommand, Debug)]
#[command(
    after_help = "Exit codes: 0 if it is so now, 1 if it failed or cannot be, 75 if it was not committed and never \
                  will be, 124 if time was up and it may still happen: the next command on this device goes on with it."
)]
pub(crate) enum CouncilCommand {
    /// Found a council, with this device as its first member
    Init {
        /// What others call this device
        #[arg(long, value_name = "NAME")]
        name: String,

        /// An acceptor, as it says when it starts; three, or five, once for each
        #[arg(long = "acceptor", value_name = "KEY@HOST:PORT", required = true)]
        acceptors: Vec<AcceptorAddress>,
    },

    /// Make a key, wait until a member has added it, and join
    Join {
        /// The council's id
        council: CouncilId,

        /// An acceptor of it, to ask for the invitation; once for each
        #[arg(long = "acceptor", value_name = "KEY@HOST:PORT", required = true)]
        acceptors: Vec<AcceptorAddress>,

        /// Take an invitation of this member only
        #[arg(long, value_name = "KEY")]
        by: Option<PublicKey>,

        /// How long to wait for the invitation
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
        wait: Duration,
    },

    /// List the members
    Members,

    /// Add a member, and send it an invitation
    Add {
        /// Its key, as `holdoff council join` says there
        key: PublicKey,

        /// What others call it
        #[arg(long, value_name = "NAME")]
        name: String,
    },

    /// Remove a member
    Remove {
        /// Its key, or its name if only one has it
        member: String,
    },

    /// Go over to a new key
    Rotate,

    /// Look at those who decide, and change them
    #[command(subcommand)]
    Acceptors(AcceptorsCommand),

    /// Let a snapshot stand for everything so far, and the acceptors forget the rest
    Compact,

    /// Print what is decided from now on, until this is ended
    Watch,

    /// Show how this device is doing, and its acceptors
    Status,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AcceptorsCommand {
    /// List those who decide
    List,

    /// Have one more decide
    Add {
        /// Who and where, as it says when it starts
        #[arg(value_name = "KEY@HOST:PORT")]
        acceptor: AcceptorAddress,
    },

    /// Have one less decide
    Remove {
        /// Its key, or the first digits of its id
        acceptor: String,
    },
}
