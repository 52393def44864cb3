//! One test in one process.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use holdoff_testbed::SKIPPED;

use super::{Job, Outcome, sleep};
use crate::run::now;

/// The longest recorded output of a test; the end explains a failure.
const OUTPUT_BYTES: usize = 64 * 1024;

/// Runs a test to its end, or kills it and its children at the limit.
pub(super) fn run(job: &Job, environment: &[(String, String)], limit: Duration) -> (Outcome, f64) {
    let failed =
        |error| Outcome::Failed { why: format!("cannot run the test: {error}"), output: String::new() };
    try_run(job, environment, limit).unwrap_or_else(|error| (failed(error), 0.0))
}

fn try_run(job: &Job, environment: &[(String, String)], limit: Duration) -> std::io::Result<(Outcome, f64)> {
    // A file takes any amount of output without a reader, and children may keep it open.
    let directory = std::env::temp_dir();
    let path = directory.join(format!("holdoff-test-{}-{:?}", std::process::id(), thread::current().id()));
    let output = File::create(&path)?;
    let mut child = Command::new(&job.path)
        .args([job.test.as_str(), "--exact", "--nocapture"])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("CARGO_MANIFEST_DIR", &job.folder)
        .current_dir(&job.folder)
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output)
        // A group of its own, so that the whole family can be killed.
        .process_group(0)
        .spawn()?;
    let (status, processor_seconds) = wait(&mut child, limit)?;
    let text = tail(&path)?;
    let _ = std::fs::remove_file(&path);
    let outcome = match status {
        None => Outcome::Failed { why: format!("not finished within {} s", limit.as_secs()), output: text },
        Some(status) if !status.success() => Outcome::Failed { why: status.to_string(), output: text },
        // A name that matches nothing passes at libtest.
        Some(_) if !text.contains("test result: ok. 1 passed") => {
            Outcome::Failed { why: "the binary did not run the test".to_owned(), output: text }
        }
        Some(_) => match text.lines().find_map(|line| line.strip_prefix(SKIPPED)) {
            Some(why) => Outcome::Skipped(why.to_owned()),
            None => Outcome::Passed,
        },
    };
    Ok((outcome, processor_seconds))
}

/// Returns the exit status of the process, `None` if it was killed at the limit, and its last known processor time.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<(Option<ExitStatus>, f64)> {
    let start = now();
    let (mut pause, mut seconds) = (Duration::from_millis(1), 0.0);
    loop {
        seconds = processor_seconds(child.id()).unwrap_or(seconds);
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), seconds));
        }
        if start.elapsed() > limit {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            child.wait()?;
            return Ok((None, seconds));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The processor time of a process and of the children that it has waited for.
fn processor_seconds(process: u32) -> Option<f64> {
    /// Linux counts in hundredths of a second whatever the kernel's own clock does.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain blanks.
    let (_, fields) = text.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    Some(times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND)
}

fn tail(path: &std::path::Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let start = bytes.len().saturating_sub(OUTPUT_BYTES);
    Ok(String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned())
}
