//! `cargo xtask tidy`: the checks that no compiler performs.

mod dependencies;
mod metrics;
mod names;
mod promises;
mod text;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{TaskResult, root};

/// A file of the project and its text.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }
}

/// Runs `cargo xtask tidy`.
pub(crate) fn run() -> TaskResult {
    let files = files()?;
    let mut findings = text::check(&files);
    findings.extend(dependencies::check(&files));
    findings.extend(names::check());
    findings.extend(promises::check(&files));
    findings.extend(metrics::check(&files));
    findings.extend(crate::api::check());
    if findings.is_empty() {
        eprintln!("▶ tidy: checked {} files, found nothing", files.len());
        return Ok(());
    }
    Err(format!("not tidy:\n  {}", findings.join("\n  ")))
}

/// Returns every text file that git tracks or would track.
fn files() -> Result<Vec<File>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("cannot list the files: {error}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let read = |name: &str| {
        let text = std::fs::read_to_string(root().join(name)).ok()?;
        Some(File { path: Path::new(name).to_owned(), text })
    };
    Ok(names.lines().filter_map(read).collect())
}
