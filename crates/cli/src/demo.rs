//! `holdoff demo` runs all of holdoff in one process on loopback and leaves nothing behind.
//!
//! The traffic, the target's responses and the schedule of events are pure functions of the seed (`traffic`, `plan`,
//! `target/answer`). The other modules carry them out over HTTP against a real daemon.

mod count;
mod daemon;
mod ending;
mod operator;
mod plan;
mod play;
mod rivals;
mod service;
mod show;
mod stage;
mod storm;
mod summary;
mod target;
mod task;
mod traffic;
mod victim;
mod voice;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_server::Place;
use tempfile::TempDir;

pub(crate) use worker::work;

use crate::args::{Args, DemoArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::serve;
use ending::Ending;
use plan::Plan;
use play::{Ended, play};
use show::Setting;
use stage::{FILE, Stage};

/// The time that background tasks get to end after the demo.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The exit code of a run that a signal ended before its summary.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(command: &DemoArgs, args: &Args) -> Result<ExitCode, Failure> {
    if args.config.is_some() {
        let why = "the demo has a file of its own (--print-config); `holdoff serve` takes yours";
        return Err(Failure::Usage(why.to_owned()));
    }
    if command.print_config {
        anstream::print!("{FILE}");
        return Ok(ExitCode::SUCCESS);
    }
    start_log()?;
    let scratch = tempfile::Builder::new().prefix("holdoff-demo-").tempdir().map_err(|error| {
        Failure::Failed(format!(
            "cannot make a folder for the demo: {error}; set TMPDIR to one you may write to"
        ))
    })?;
    let data = command.data.clone().unwrap_or_else(|| scratch.path().join("data"));
    refuse_other(&data)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(perform(command, args.json, scratch.path(), &data)));
    // No task may write to the directory while it is removed.
    runtime.shutdown_timeout(LAST_WORDS);
    let code = match ended? {
        Ended::Played(summary) => {
            show::summarise(&summary, args.json)?;
            if summary.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ended::Early if command.once => {
            anstream::eprintln!("ended before there was a summary");
            ExitCode::from(INTERRUPTED)
        }
        Ended::Early => ExitCode::SUCCESS,
    };
    clear(scratch, command.data.as_deref())?;
    Ok(code)
}

async fn perform(command: &DemoArgs, is_json: bool, scratch: &Path, data: &Path) -> Result<Ended, Failure> {
    let mut ending = Ending::new()?;
    let plan = if command.once { Plan::once(command.lasts) } else { Plan::endless() };
    let stage = tokio::select! {
        stage = Stage::set(command, &plan, scratch, data) => stage?,
        () = ending.wanted() => return Ok(Ended::Early),
    };
    let url = stage.server.url();
    if command.once {
        let (time, seed) = (crate::output::time(command.lasts), command.seed);
        stage.moved.iter().for_each(|moved| anstream::eprintln!("{moved}"));
        anstream::eprintln!(
            "runs for {time} at {url}, with seed {seed}, and until what is under way is done"
        );
    } else {
        let setting = Setting {
            url: &url,
            seed: command.seed,
            moved: stage.moved.as_deref(),
            kept: command.data.as_deref(),
        };
        // A closed stdout does not keep the demo from serving.
        let _ = show::greet(&setting, is_json);
    }
    play(stage, plan, command.seed, &mut ending).await
}

/// Logs only errors unless `RUST_LOG` is set, because the demo's failures are intended.
fn start_log() -> Result<(), Failure> {
    let mut config = Config::default();
    let is_wanted = std::env::var_os("RUST_LOG").is_some_and(|value| !value.is_empty());
    config.whole.server.running.log = (!is_wanted).then(|| "error".to_owned());
    serve::start_log(&config)
}

/// Refuses a directory that already contains a store, so that the demo's tasks do not mix with others.
fn refuse_other(data: &Path) -> Result<(), Failure> {
    if Place::directory(data).missing_file().is_some() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "there is a store in {} already, and the demo wants one of its own: name another directory by --data",
        data.display()
    )))
}

/// Removes the files of this run and reports it.
fn clear(scratch: TempDir, kept: Option<&Path>) -> Result<(), Failure> {
    let path = scratch.path().to_owned();
    scratch.close().map_err(|error| {
        Failure::Failed(format!(
            "{} could not be removed: {error}; it is not needed any more",
            path.display()
        ))
    })?;
    match kept {
        None => anstream::eprintln!("removed {}: nothing is left", path.display()),
        Some(data) => {
            let data = data.display();
            anstream::eprintln!("the store stays in {data}: `holdoff serve --data {data}` shows it again");
        }
    }
    Ok(())
}
