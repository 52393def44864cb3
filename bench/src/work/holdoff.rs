//! Ourselves. Our processes are this same program, asked to play a part.

use std::process::{Command, ExitCode};

use super::SUBMIT_BATCH;
use super::contestant::{Contestant, Unfinished};

/// How many steps a worker claims, and reports, at a time.
pub(super) const BATCH: u32 = 500;

/// The word that makes this program a contestant instead of the bench.
const PART: &str = "as-contestant";

pub(super) struct Holdoff;

impl Holdoff {
    fn command(arguments: &[&str]) -> Command {
        let mut program = Command::new(std::env::current_exe().unwrap_or_default());
        program.arg(PART).args(arguments);
        program
    }
}

impl Contestant for Holdoff {
    fn name(&self) -> String {
        "holdoff".to_owned()
    }

    /// There is nothing to install; `Ok(())` once the three parts below are played.
    fn install(&self) -> Result<(), String> {
        Err("it has no worker yet".to_owned())
    }

    fn migrate(&self, url: &str) -> Command {
        Self::command(&["migrate", url])
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        Self::command(&["submit", url, &jobs.to_string()])
    }

    fn work(&self, url: &str) -> Command {
        Self::command(&["work", url])
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished { table: "holdoff.steps", id: "task" }
    }
}

/// Plays a part, if this process was started for that.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let played = match words.as_slice() {
        [PART, "migrate", url] => migrate(url),
        [PART, "submit", url, jobs] => submit(url, jobs.parse().unwrap_or(0)),
        [PART, "work", url] => work(url),
        _ => return None,
    };
    let failed = |why: String| {
        eprintln!("{why}");
        ExitCode::FAILURE
    };
    Some(played.map_or_else(failed, |()| ExitCode::SUCCESS))
}

fn migrate(url: &str) -> Result<(), String> {
    Err(format!("nobody makes tables in {url} yet"))
}

fn submit(url: &str, jobs: u32) -> Result<(), String> {
    super::process::wait_for_go()?;
    Err(format!("nobody submits {jobs} steps to {url} yet, {SUBMIT_BATCH} at a time"))
}

fn work(url: &str) -> Result<(), String> {
    super::process::wait_for_go()?;
    Err(format!("nobody works on {url} yet, {BATCH} steps at a time"))
}
