//! The `holdoff` command.
//!
//! Data goes to stdout, everything else to stderr. The command exits with 0 on success, 1 on failure and 2 on invalid
//! usage. `lock run` passes through the exit code of its command and has a few codes of its own.

mod acceptor;
mod admin;
mod args;
mod audit;
mod config;
mod council;
mod daemon;
mod demo;
mod failure;
mod ledger;
mod lock;
mod output;
mod policy;
mod serve;
mod sim;
mod token;
mod work;

use std::process::ExitCode;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let mark = output::style::ERROR;
            anstream::eprintln!("{mark}error:{mark:#} {failure}");
            failure.code()
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Policy(command) => policy::run(command, args),
        Command::Serve(command) => serve::run(command, args),
        Command::Acceptor(command) => acceptor::run(command, args),
        Command::Demo(command) => demo::run(command, args),
        Command::DemoWorker(command) => demo::work(command),
        Command::Work(command) => work::run(command, args),
        Command::Lock(command) => lock::run(command, args),
        Command::Council(command) => council::run(command, args),
        Command::Ledger(command) => ledger::run(command, args),
        Command::Admin(command) => admin::run(command, args),
        Command::Token(command) => token::run(command, args),
        Command::Audit(command) => audit::run(command, args),
        Command::Sim(command) => sim::run(command, args),
        Command::Config(command) => config::run(command, args),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Args::command(), "holdoff", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => {
            match dir {
                Some(dir) => write_pages(dir).map_err(|error| {
                    Failure::Failed(format!("cannot write the manual to {}: {error}", dir.display()))
                })?,
                None => clap_mangen::Man::new(Args::command()).render(&mut std::io::stdout())?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write_pages(dir: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command(), dir)
}
