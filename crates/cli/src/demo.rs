//! `holdoff demo` runs all of holdoff in one process on loopback and leaves nothing behind.
//!
//! The traffic, the target's responses and the schedule of events are pure functions of the seed (`traffic`, `target`,
//! `plan`). The other modules carry them out over HTTP against a real daemon.

mod contenders;
mod operator;
mod output;
mod plan;
mod run;
mod setup;
mod storm;
mod summary;
mod target;
mod traffic;
mod workers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use holdoff_policy::parse_duration;
use holdoff_server::{Options, StoreUrl};
use tempfile::TempDir;

pub(crate) use workers::{DemoWorkerArgs, run_worker};

use crate::args::{GlobalArgs, parse_listen_address, with_default};
use crate::config::Config;
use crate::error::{CommandError, EXIT_INTERRUPTED};
use crate::output::time;
use crate::serve;
use crate::signals::StopSignals;
use output::RunInfo;
use plan::Plan;
use run::{RunOutcome, run_plan};
use setup::{FILE, Setup};

/// The shortest and the longest run. In the shortest, every event of the plan still occurs; during the longest, no
/// record is evicted before the summary.
const DURATIONS: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(600);

#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {
    /// Run for a limited time, wait for unfinished work, then print and check a summary
    #[arg(long)]
    once: bool,

    /// Duration of the traffic before the summary
    #[arg(long = "for", value_name = "TIME", requires = "once", default_value = "15s", value_parser = parse_run_time)]
    lasts: Duration,

    #[arg(
        long,
        value_name = "ADDR",
        value_parser = parse_listen_address,
        help = with_default("Loopback address to listen on", format_args!("{}, or a free port if it is in use", Options::LISTEN))
    )]
    listen: Option<SocketAddr>,

    /// Keep the store in this directory, which must not contain a store yet [default: a temporary directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,

    /// Seed of the random number generator
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Print the configuration file of the demo without running it
    #[arg(long)]
    print_config: bool,
}

fn parse_run_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if DURATIONS.contains(&time) { Ok(time) } else { Err("expected 5s to 10m".to_owned()) }
}

/// The time that background tasks get to end after the demo.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &DemoArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    if global.config.is_some() {
        let why = "the demo has its own configuration file (--print-config); use `holdoff serve` for another";
        return Err(CommandError::Usage(why.to_owned()));
    }
    if args.print_config {
        anstream::print!("{FILE}");
        return Ok(ExitCode::SUCCESS);
    }
    start_log()?;
    let scratch = tempfile::Builder::new().prefix("holdoff-demo-").tempdir().map_err(|error| {
        CommandError::Failed(format!(
            "cannot create a temporary directory: {error}; set TMPDIR to a writable directory"
        ))
    })?;
    let data = args.data.clone().unwrap_or_else(|| scratch.path().join("data"));
    refuse_existing_store(&data)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(perform(args, global.json, scratch.path(), &data)));
    // No task may write to the directory while it is removed.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    let code = match ended? {
        RunOutcome::Completed(summary) => {
            output::print_summary(&summary, global.json)?;
            if summary.inconsistencies.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        RunOutcome::Interrupted if args.once => {
            note!("interrupted before the summary");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        RunOutcome::Interrupted => ExitCode::SUCCESS,
    };
    remove_files(scratch, args.data.as_deref())?;
    Ok(code)
}

async fn perform(
    args: &DemoArgs,
    is_json: bool,
    scratch: &Path,
    data: &Path,
) -> Result<RunOutcome, CommandError> {
    let mut signals = StopSignals::with_hangup()?;
    let plan = if args.once { Plan::once(args.lasts) } else { Plan::endless() };
    let setup = tokio::select! {
        setup = Setup::start(args, &plan, scratch, data) => setup?,
        _ = signals.next() => return Ok(RunOutcome::Interrupted),
    };
    let url = setup.server.url();
    if args.once {
        let (duration, seed) = (time(args.lasts), args.seed);
        setup.moved.iter().for_each(|moved| note!("{moved}"));
        note!("running for {duration} at {url} with seed {seed}, and until all accepted work is finished");
    } else {
        let info =
            RunInfo { url: &url, seed: args.seed, moved: setup.moved.as_deref(), kept: args.data.as_deref() };
        // A closed stdout does not keep the demo from serving.
        let _ = output::print_greeting(&info, is_json);
    }
    run_plan(setup, plan, args.seed, &mut signals).await
}

/// Logs only errors unless `RUST_LOG` is set, because the demo's failures are intended.
fn start_log() -> Result<(), CommandError> {
    let mut config = Config::default();
    let is_wanted = std::env::var_os("RUST_LOG").is_some_and(|value| !value.is_empty());
    config.settings.server.running.log = (!is_wanted).then(|| "error".to_owned());
    serve::start_log(&config)
}

/// Refuses a directory that already contains a store, so that the demo's tasks do not mix with others.
fn refuse_existing_store(data: &Path) -> Result<(), CommandError> {
    if StoreUrl::in_directory(data).missing_file().is_some() {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "{} already contains a store, and the demo needs a new one; set --data to another directory",
        data.display()
    )))
}

/// Removes the files of this run and reports it.
fn remove_files(scratch: TempDir, kept: Option<&Path>) -> Result<(), CommandError> {
    let path = scratch.path().to_owned();
    scratch.close().map_err(|error| {
        CommandError::Failed(format!("cannot remove {}: {error}; it is no longer needed", path.display()))
    })?;
    match kept {
        None => note!("removed {}", path.display()),
        Some(data) => {
            let data = data.display();
            note!("kept the store in {data}; `holdoff serve --data {data}` serves it");
        }
    }
    Ok(())
}
