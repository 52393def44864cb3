//! The lab's output depends only on its arguments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The results of a run: its files by name, and its output.
struct Left {
    files: BTreeMap<String, Vec<u8>>,
    stdout: Vec<u8>,
}

fn simulate(scenario: &str, threads: &str, seed: &str) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let size = match scenario {
        "election" => &["--nodes", "5,10", "--seeds", "3", "--set", "duration=50s"][..],
        _ => &["--clients", "20,40", "--runs", "7"][..],
    };
    let run = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["sim", scenario])
        .args(size)
        .args(["--threads", threads, "--seed", seed, "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{scenario}: {}", String::from_utf8_lossy(&run.stderr));
    Left { files: files(folder.path()), stdout: run.stdout }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    for scenario in ["row", "storm", "limit", "outage", "duel", "election"] {
        let first = simulate(scenario, "1", "5");
        let chart = if scenario == "election" { "recovery.svg" } else { "delays.svg" };
        for expected in ["report.html", "results.csv", "results.json", "params.toml", chart] {
            assert!(first.files.contains_key(expected), "{scenario}: {expected} is missing");
        }
        for threads in ["1", "2"] {
            let again = simulate(scenario, threads, "5");
            assert!(first.files.keys().eq(again.files.keys()), "{scenario}: other files");
            for (name, bytes) in &first.files {
                assert!(
                    again.files.get(name) == Some(bytes),
                    "{scenario}, {threads} threads: {name} differs"
                );
            }
            assert!(again.stdout == first.stdout, "{scenario}, {threads} threads: other output");
        }
        let other = simulate(scenario, "2", "6");
        assert!(
            other.files.get("results.csv") != first.files.get("results.csv"),
            "{scenario}: the seed is ignored"
        );
    }
}

/// The written parameters reproduce the results.
#[test]
fn the_written_parameters_give_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let holdoff = |arguments: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_holdoff"))
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        run.stdout
    };
    let asked = ["sim", "storm", "--set", "hold=300ms", "--set", "processes=5", "--runs", "4", "--json"];
    let first = holdoff(&[&asked[..], &["--out", "."]].concat());
    let again = holdoff(&["sim", "storm", "--params", "params.toml", "--runs", "4", "--json"]);
    assert_eq!(first, again);
}
