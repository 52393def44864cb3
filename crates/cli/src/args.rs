//! The command-line arguments.

mod acceptor;
mod admin;
mod audit;
mod council;
mod demo;
mod ledger;
mod lock;
mod place;
mod serve;
mod token;
mod work;

pub(crate) use acceptor::AcceptorArgs;
pub(crate) use admin::{AdminArgs, AdminCommand, ApplyArgs};
pub(crate) use audit::{AuditArgs, AuditCommand};
pub(crate) use council::{AcceptorsCommand, CouncilArgs, CouncilCommand};
pub(crate) use demo::{DemoArgs, DemoWorkerArgs};
pub(crate) use ledger::{
    LedgerArgs, LedgerCommand, LedgerMembersCommand, LedgerPlaceArgs, LedgerSubmitArgs, ReadHow,
};
pub(crate) use lock::{LockArgs, LockCommand, LockListArgs, LockRunArgs};
pub(crate) use place::PlaceArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use token::{TokenArgs, TokenCommand, TokenCreateArgs};
pub(crate) use work::{
    ActArgs, FilterArgs, ListArgs, PauseArgs, ResolveArgs, SubmitArgs, Target, WorkArgs, WorkCommand,
};

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Parser, Subcommand, ValueHint};

/// Decides when to try again.
#[derive(Parser, Debug)]
#[command(name = "holdoff", version, about, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    /// The policy file [default: holdoff.toml in this folder, if there is one; the presets alone otherwise]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Look at policies: what they do, what is wrong with them
    #[command(subcommand)]
    Policy(PolicyCommand),

    /// Serve durable work over HTTP, and do it
    Serve(ServeArgs),

    /// Decide for councils: keep promises and votes, over TLS, on a disk of its own
    Acceptor(AcceptorArgs),

    /// See all of it alive: a daemon, traffic, and a target that misbehaves; leaves nothing behind
    Demo(DemoArgs),

    /// The worker that the demo kills
    #[command(hide = true)]
    DemoWorker(DemoWorkerArgs),

    /// Submit durable work, look at it, and put right what went wrong
    Work(WorkArgs),

    /// Run a command under a lock, and look after locks
    Lock(LockArgs),

    /// Decide together, with no leader: who belongs to a council, and who decides for it
    Council(CouncilArgs),

    /// Keep one history together: a leader, transactions, and who belongs to it
    Ledger(LedgerArgs),

    /// Make, list and revoke API tokens for the daemon
    Token(TokenArgs),

    /// See what operators did
    Audit(AuditArgs),

    /// See a storm before it happens: many clients, virtual time, policies side by side
    Sim(SimArgs),

    /// Look after a store: back it up, restore it
    Admin(AdminArgs),

    /// Everything about the configuration: the file, the variables, the flags
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Print a completion script for your shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write all of them to a folder
    Man {
        /// The folder
        #[arg(long, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyCommand {
    /// List all policies, with what each is for
    List,

    /// Show a policy as it stands in a policy file
    Show {
        /// The policy
        name: String,
    },

    /// Show every wait a policy can grant: its window, its mean, the total so far
    Explain {
        /// The policy
        name: String,

        /// Draw the windows into this SVG file as well
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        plot: Option<PathBuf>,
    },

    /// Show which policy an operation uses
    For {
        /// The operation
        operation: String,

        /// Its namespace
        #[arg(long, default_value = holdoff_policy::PolicySet::DEFAULT_NAMESPACE)]
        namespace: String,
    },

    /// Look for trouble in a policy file
    Lint {
        /// The file [default: the one that would be used]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },

    /// Show the delay after one failed try, and the decision
    Delay(DelayArgs),

    /// Show which status or error belongs to which failure class
    Classes,

    /// Put a policy file in force for every node on a store; shows first what would change
    Apply(ApplyArgs),

    /// List the versions of the policies that a store has seen
    Versions(PlaceArgs),
}

#[derive(clap::Args, Debug)]
pub(crate) struct DelayArgs {
    /// The policy
    pub(crate) name: String,

    /// The try that failed; the first is 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: u32,

    /// The delay before it, for decorrelated jitter
    #[arg(long, value_name = "TIME", value_parser = holdoff_policy::parse_duration)]
    pub(crate) last: Option<std::time::Duration>,

    /// What the server said: seconds, an HTTP date, or a time such as 2m
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    pub(crate) retry_after: Option<String>,

    /// How many contend
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) crowd: Option<u32>,

    /// The roll, for the same delay every time [default: a random one]
    #[arg(long, value_name = "R")]
    pub(crate) roll: Option<u32>,

    /// The failure's class
    #[arg(long, value_name = "CLASS", default_value = "transient")]
    pub(crate) class: holdoff_policy::Class,
}

#[derive(clap::Args, Debug)]
pub(crate) struct SimArgs {
    /// What happens
    #[arg(value_parser = scenario_names())]
    pub(crate) scenario: String,

    /// What decides, once for each to compare: a policy of the file, a preset, or one of the lab's own
    /// (none, exponential, full, equal, decorrelated, crowd, fixed, told, told-spread; linear, linear-stale,
    /// proposal-stale, council); of an election, a way to find a leader (first, first-sticky, first-hysteresis,
    /// first-slow, holdoff)
    /// [default: those that tell the scenario's story]
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
    pub(crate) policies: Vec<String>,

    /// How many clients, separated by commas; of an election, nodes [default: the scenario's]
    #[arg(long, visible_alias = "nodes", value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) clients: Vec<u32>,

    /// How many runs make a figure [default: 100; 10 with --all]
    #[arg(long, visible_alias = "seeds", value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) runs: Option<u32>,

    /// What all chance follows from
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many threads share the runs; it changes nothing but the time [default: one for each core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,

    /// The scenario's parameters, as a TOML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) params: Option<PathBuf>,

    /// One of the scenario's parameters, such as hold=2s or layers=3
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Run the election's whole table, and hold it against what holdoff's way must do
    #[arg(long, conflicts_with_all = ["clients", "params", "set", "show_params", "out"])]
    pub(crate) all: bool,

    /// Print the scenario's parameters as TOML, and run nothing
    #[arg(long)]
    pub(crate) show_params: bool,

    /// Write a report, its charts and its data into this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

fn scenario_names() -> PossibleValuesParser {
    holdoff_sim::scenario::Scenario::ALL.map(|(name, about)| PossibleValue::new(name).help(about)).into()
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Show every value in force, and where it comes from: a flag, a variable, the file or the default
    Show(ServeArgs),

    /// Look for mistakes in the file, the variables and the flags; all of them are reported at once
    Check(ServeArgs),

    /// Print the JSON schema of the file
    Schema,
}
