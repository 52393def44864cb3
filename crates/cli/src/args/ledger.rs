//! `holdoff ledger …`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum, ValueHint};
use holdoff_ledger::runtime::Contact;
use holdoff_policy::{PolicySet, parse_duration};

#[derive(clap::Args, Debug)]
pub(crate) struct LedgerArgs {
    /// The namespace: what the ledger is called
    #[arg(long, global = true, value_name = "NAME", default_value = PolicySet::DEFAULT_NAMESPACE)]
    pub(crate) namespace: String,

    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "The daemon to ask [default: $HOLDOFF_URL, then where the file says that it listens]"
    )]
    pub(crate) url: Option<String>,

    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Subcommand, Debug)]
#[command(
    after_help = "Exit codes: 0 if it is so now, 1 if it failed, 2 if it was not asked right, 75 if nobody was there to \
                  do it and nothing has happened, 124 if time was up and it may still happen: submit it again under \
                  the same --tx-id.\n\n`init` and `join` work on a directory, with no daemon. Everything else asks a \
                  daemon, and sends $HOLDOFF_API_TOKEN if that is set."
)]
pub(crate) enum LedgerCommand {
    /// Make a ledger that this node decides alone until others come
    Init {
        #[command(flatten)]
        place: LedgerPlaceArgs,
    },

    /// Make room for a ledger that others have made; prints the line that a member must run
    Join {
        #[command(flatten)]
        place: LedgerPlaceArgs,

        /// A member of it, as its daemon says when it starts; once for each that may be asked
        #[arg(long = "member", value_name = "KEY@HOST:PORT", required = true)]
        members: Vec<Contact>,

        /// Where members will reach this node, for the line to run [default: what the file says]
        #[arg(long, value_name = "HOST:PORT")]
        address: Option<String>,
    },

    /// Show how the ledger is doing: who leads, how far everybody is
    Status {
        /// Show it again whenever it has changed, until this is ended
        #[arg(long)]
        watch: bool,
    },

    /// Have a goal reached, and say what came of it
    Submit(LedgerSubmitArgs),

    /// Show a value, or what a goal finds; nothing is changed
    Get {
        /// The value's key
        #[arg(required_unless_present = "goal")]
        key: Option<String>,

        /// A goal over facts instead, such as 'balance(alice, ?a)': a text, @FILE or - for stdin
        #[arg(long, conflicts_with = "key")]
        goal: Option<String>,

        /// How sure it must be
        #[arg(long, value_enum, default_value = "quorum")]
        how: ReadHow,

        /// How long to look for whoever leads
        #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
        timeout: Duration,
    },

    /// Show what has happened, in its order
    History {
        /// Only what came after this index; older entries than the daemon keeps are gone
        #[arg(long, value_name = "N")]
        after: Option<u64>,

        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,

        /// Go on with what happens from now on, until this is ended
        #[arg(long, conflicts_with = "limit")]
        follow: bool,
    },

    /// Go over the history that the daemon keeps: every hash, and the signatures under them
    Verify,

    /// Look at those who belong to the ledger, and change them
    Members {
        #[command(subcommand)]
        command: Option<LedgerMembersCommand>,
    },

    /// Let another member lead
    StepDown {
        /// This one, by its key or name [default: whoever has come furthest]
        #[arg(long, value_name = "MEMBER")]
        to: Option<String>,
    },

    /// Put a snapshot in the place of all entries so far on the daemon's disk
    Snapshot,
}

#[derive(clap::Args, Debug)]
pub(crate) struct LedgerPlaceArgs {
    /// The daemon's directory, as `holdoff serve --data` has it; the ledger is in `ledger` there [default: holdoff in
    /// the user's data directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct LedgerSubmitArgs {
    /// What must be so and what to change then, such as 'job(?id, waiting) => -job(?id, waiting)': a text, @FILE or -
    /// for stdin
    #[arg(required_unless_present = "commands", allow_hyphen_values = true)]
    pub(crate) goal: Option<String>,

    /// Commands over values instead, such as '[{"increment": "visits"}]': JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "goal")]
    pub(crate) commands: Option<String>,

    /// Its name, 32 hexadecimal digits: however often and wherever it is submitted, it happens at most once [default:
    /// a new one]
    #[arg(long, value_name = "ID", value_parser = tx_id)]
    pub(crate) tx_id: Option<String>,

    /// How long to wait for what comes of it
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LedgerMembersCommand {
    /// List them
    List,

    /// Let a node in, or change what is said of one that is
    Add {
        /// Its key and where it listens, as `holdoff ledger join` says there
        #[arg(value_name = "KEY@HOST:PORT")]
        member: Contact,

        /// What people call it [default: the first digits of its key]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,

        /// It learns what the others decide, and does not vote
        #[arg(long)]
        learns: bool,
    },

    /// Let a member go
    Remove {
        /// Its key, or its name if only one has it
        member: String,
    },
}

/// How sure a read must be.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadHow {
    /// What the daemon has, however old
    Local,
    /// All that was acknowledged before: a majority is asked
    Quorum,
    /// The same without asking, as long as clocks drift apart no more than is said
    Lease,
}

impl ReadHow {
    /// Returns the name of the consistency level in the daemon's API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Quorum => "quorum",
            Self::Lease => "lease",
        }
    }
}

fn tx_id(text: &str) -> Result<String, String> {
    let is_one = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(|| "the name of a transaction has 32 hexadecimal digits".to_owned())
}
