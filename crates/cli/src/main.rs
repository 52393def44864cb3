//! The `holdoff` command.
//!
//! Data goes to stdout, everything else to stderr. The command exits with 0 on success, 1 on failure and 2 on invalid
//! usage. `lock run` passes through the exit code of its command; [`error`] lists the other exit codes.
//!
//! Each module of a command has the command's arguments, the function that runs it, and its output. [`args`] has the
//! arguments that several commands share.

#[macro_use]
mod output;

mod acceptor;
mod admin;
mod api_client;
mod args;
mod audit;
mod config;
mod council;
mod demo;
mod error;
mod input;
mod ledger;
mod lock;
mod policy;
mod serve;
mod signals;
mod sim;
mod store;
mod token;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueHint};

use crate::args::GlobalArgs;
use crate::error::CommandError;

/// Retry policies, durable tasks, locks and replicated state
#[derive(Parser, Debug)]
#[command(name = "holdoff", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Inspect, check and deploy retry policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),

    /// Run the daemon: serve the HTTP API and the dashboard, and execute durable tasks
    Serve(serve::ServeArgs),

    /// Run an acceptor, which stores promises and votes for councils
    Acceptor(acceptor::AcceptorArgs),

    /// Run a daemon with simulated traffic and failures, and remove all of it at the end
    Demo(demo::DemoArgs),

    /// Run the worker process that the demo kills
    #[command(hide = true)]
    DemoWorker(demo::DemoWorkerArgs),

    /// Submit, inspect, retry and cancel durable tasks
    Work(work::WorkArgs),

    /// Run a command while holding a lock, and administer locks
    Lock(lock::LockArgs),

    /// Create or join a council, a replicated group without a leader, and change its members
    Council(council::CouncilArgs),

    /// Create or join a ledger, a replicated log with a leader, and submit transactions
    Ledger(ledger::LedgerArgs),

    /// Create, list and revoke API tokens
    Token(token::TokenArgs),

    /// Read the audit log
    Audit(audit::AuditArgs),

    /// Simulate many clients in virtual time and compare retry policies
    Sim(sim::SimArgs),

    /// Back up and restore a store
    Admin(admin::AdminArgs),

    /// Show and check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),

    /// Print a completion script for a shell
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write all manual pages to a directory
    Man {
        /// Directory to write the manual pages to
        #[arg(long, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let style = output::style::ERROR;
            note!("{style}error:{style:#} {error}");
            error.code()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, CommandError> {
    let global = &cli.global;
    match &cli.command {
        Command::Policy(command) => policy::run(command, global),
        Command::Serve(args) => serve::run(args, global),
        Command::Acceptor(args) => acceptor::run(args, global),
        Command::Demo(args) => demo::run(args, global),
        Command::DemoWorker(args) => demo::run_worker(args),
        Command::Work(args) => work::run(args, global),
        Command::Lock(args) => lock::run(args, global),
        Command::Council(args) => council::run(args, global),
        Command::Ledger(args) => ledger::run(args, global),
        Command::Admin(args) => admin::run(args, global),
        Command::Token(args) => token::run(args, global),
        Command::Audit(args) => audit::run(args, global),
        Command::Sim(args) => sim::run(args, global),
        Command::Config(command) => config::run(command, global),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "holdoff", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => {
            match dir {
                Some(dir) => write_manual(dir).map_err(|error| {
                    CommandError::Failed(format!(
                        "cannot write the manual pages to {}: {error}",
                        dir.display()
                    ))
                })?,
                None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write_manual(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)
}
