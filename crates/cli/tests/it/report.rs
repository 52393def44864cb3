//! The lab's report in a real browser.

use std::path::Path;
use std::process::Command;

use fantoccini::Locator;

use crate::browser::Browser;

/// Runs the lab, which writes its report into the folder.
fn simulate(scenario: &str, more: &[&str], folder: &Path) {
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
async fn every_report_opens_and_shows_its_plots() {
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
        simulate(scenario, more, folder.path());
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
            assert!(labels.contains("100s"), "the outage is shown to its end, not {labels}");
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
async fn a_policys_plot_is_drawn() {
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
