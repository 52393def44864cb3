//! The lab's output, which depends only on its arguments, and its report in a real browser.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fantoccini::Locator;

use crate::browser::Browser;

/// The results of a run: its files by name, and its output.
struct SimulationOutput {
    files: BTreeMap<String, Vec<u8>>,
    stdout: Vec<u8>,
}

fn simulate(scenario: &str, threads: &str, seed: &str) -> SimulationOutput {
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
    SimulationOutput { files: files(folder.path()), stdout: run.stdout }
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
fn the_written_parameters_reproduce_the_results() {
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

/// Runs the lab, which writes its report into the folder.
fn write_report(scenario: &str, more: &[&str], folder: &Path) {
    let run = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["sim", scenario, "--runs", "20", "--out"])
        .arg(folder)
        .args(more)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// Returns the folder for screenshots.
fn pictures() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn every_report_shows_its_charts() {
    let browser = Browser::open().await;
    let reports: [(&str, &[&str], usize); 6] = [
        ("row", &["--clients", "10,100"], 4),
        ("storm", &[], 2),
        ("limit", &[], 2),
        ("outage", &["--policy", "standard", "--policy", "aggressive"], 2),
        ("outage", &["--set", "budget={}"], 2),
        ("duel", &[], 4),
    ];
    for (scenario, more, plots) in reports {
        let folder = tempfile::tempdir().unwrap();
        write_report(scenario, more, folder.path());
        let page = folder.path().join("report.html");
        browser.client.goto(&format!("file://{}", page.display())).await.unwrap();
        let title = browser.client.find(Locator::Css("h1")).await.unwrap().text().await.unwrap();
        assert_eq!(title, scenario);

        let charts = browser.client.find_all(Locator::Css("figure svg")).await.unwrap();
        assert_eq!(charts.len(), plots, "{scenario}");
        for chart in charts {
            let (_, _, width, height) = chart.rectangle().await.unwrap();
            assert!(width > 300.0 && height > 150.0, "{scenario}: a plot of {width} × {height}");
            let drawn = chart.find_all(Locator::Css("path.line, path.steps, rect[class^=f]")).await.unwrap();
            assert!(!drawn.is_empty(), "{scenario}: an empty plot");
        }
        if scenario == "outage" {
            let over_time = browser.client.find(Locator::Css("#calls-over-time svg")).await.unwrap();
            let labels = over_time.text().await.unwrap();
            assert!(labels.contains("100s"), "the chart shows the whole outage, not {labels}");
        }
        let figures = browser.client.find_all(Locator::Css("tbody tr")).await.unwrap();
        assert!(!figures.is_empty(), "{scenario}: no figures");

        let picture = browser.client.screenshot().await.unwrap();
        assert!(picture.len() > 20_000, "{scenario}: a blank picture");
        std::fs::write(pictures().join(format!("sim-{scenario}.png")), picture).unwrap();
        assert_eq!(
            browser.console().await,
            Vec::<serde_json::Value>::new(),
            "{scenario}: the console is not silent"
        );
    }
    browser.close().await;
}

/// A separate chart file is a valid image too.
#[tokio::test]
async fn the_chart_of_a_policy_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("standard.svg");
    let explained = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["policy", "explain", "standard", "--plot"])
        .arg(&plot)
        .output()
        .unwrap();
    assert!(explained.status.success());
    let browser = Browser::open().await;
    browser.client.goto(&format!("file://{}", plot.display())).await.unwrap();
    let bars = browser.client.find_all(Locator::Css("rect.f0")).await.unwrap();
    assert_eq!(bars.len(), 1 + 4, "the legend and four waits");
    std::fs::write(pictures().join("policy-standard.png"), browser.client.screenshot().await.unwrap())
        .unwrap();
    assert_eq!(browser.console().await, Vec::<serde_json::Value>::new());
    browser.close().await;
}
