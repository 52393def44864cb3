//! `cargo xtask soak`: the long test runs.
//!
//! The defaults of their lengths are here; environment variables override them, for a shorter or a longer
//! run.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::run::{TaskResult, bench, cargo, cargo_command};

/// Runs `cargo xtask soak`.
pub(crate) fn run() -> TaskResult {
    pure_and_chaos()?;
    council()?;
    ledger()?;
    server()?;
    jepsen()
}

/// Runs `cargo xtask soak council`: a hundred thousand seeds of fault injection, ten million requests to a
/// council's acceptor, and as many through its writer.
pub(crate) fn council() -> TaskResult {
    let seeds = [
        "test",
        "-p",
        "holdoff-council",
        "--all-features",
        "--lib",
        "simulation::devices_agree",
        "--",
        "--nocapture",
    ];
    run_long(&seeds, &[("HOLDOFF_SEEDS", "100000")])?;
    let fuzz =
        ["test", "-p", "holdoff-council", "--all-features", "--test", "it", "fuzz", "--", "--nocapture"];
    run_long(&fuzz, &[("HOLDOFF_SEEDS", "10000000"), ("HOLDOFF_SEED", "1000000")])
}

/// Runs `cargo xtask soak ledger`: a hundred thousand seeds of fault injection for its core, and the whole
/// table of elections.
pub(crate) fn ledger() -> TaskResult {
    let seeds =
        ["test", "-p", "holdoff-ledger", "--all-features", "--lib", "one_history", "--", "--nocapture"];
    run_long(&seeds, &[("HOLDOFF_SEEDS", "100000")])?;
    cargo(&["run", "--release", "--quiet", "--", "sim", "election", "--all"], &[])
}

/// Runs `cargo xtask soak jepsen`: ten minutes of each kind of faults. Prints the rows of the table again at the end.
pub(crate) fn jepsen() -> TaskResult {
    const SECONDS: (&str, &str) = ("HOLDOFF_JEPSEN_SECONDS", "600");
    let environment = if std::env::var_os(SECONDS.0).is_none() { vec![SECONDS] } else { Vec::new() };
    // The same build as that of `cargo xtask test`: other features would rebuild the whole workspace.
    let tests = ["test", "--workspace", "--all-features", "--test", "it", "ledger::jepsen::"];
    let mut child = cargo_command(&tests, &environment)
        .args(["--", "--nocapture", "--test-threads=1"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let mut table = vec![
        "| faults | times | operations | acknowledged writes | unknown | anomalies | longest time without an acknowledged write |"
            .to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    let output = child.stdout.take().ok_or("cargo has no output")?;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        println!("{line}");
        if line.starts_with('|') {
            table.push(line);
        }
    }
    println!("\n{}", table.join("\n"));
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("a test failed; its messages are above".to_owned()) }
}

fn run_long(arguments: &[&str], environment: &[(&str, &str)]) -> TaskResult {
    let is_unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
    let unset: Vec<_> = environment.iter().filter(is_unset).copied().collect();
    cargo(arguments, &unset)
}

/// Runs `cargo xtask soak server`.
pub(crate) fn server() -> TaskResult {
    bench(&["soak", "server"])
}

fn pure_and_chaos() -> TaskResult {
    for pure in ["holdoff-policy", "holdoff-ledger"] {
        let fuzz = ["test", "--release", "-p", pure, "--test", "it", "fuzz::", "--", "--nocapture"];
        run_long(&fuzz, &[("HOLDOFF_SEEDS", "10000000"), ("HOLDOFF_SEED", "1000000")])?;
        run_long(
            &["test", "--release", "-p", pure, "--test", "it", "laws::"],
            &[("PROPTEST_CASES", "200000")],
        )?;
    }
    let frames = ["test", "--release", "-p", "holdoff-net", "--lib", "fuzz", "--", "--nocapture"];
    run_long(&frames, &[("HOLDOFF_SEEDS", "10000000"), ("HOLDOFF_SEED", "1000000")])?;
    let storms = ["test", "-p", "holdoff-net", "--features", "turmoil", "--test", "it", "--", "--nocapture"];
    run_long(&storms, &[("HOLDOFF_SEEDS", "2000"), ("HOLDOFF_SEED", "1000000")])?;
    let models =
        ["test", "--release", "-p", "holdoff-paxos", "--lib", "--", "--include-ignored", "--nocapture"];
    run_long(&models, &[("HOLDOFF_SEEDS", "100000")])?;
    let chaos = ["test", "-p", "holdoff-work", "--test", "it", "chaos::", "--", "--nocapture"];
    run_long(&chaos, &[("HOLDOFF_CHAOS_STEPS", "300000"), ("HOLDOFF_CHAOS_SECONDS", "600")])
}
