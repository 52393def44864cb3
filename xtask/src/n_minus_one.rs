//! `cargo xtask n-minus-one`: runs a daemon of an earlier release beside the new one, on the migrated schema.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{TaskResult, cargo, root};

/// The first release whose storage formats later releases read. Until it is tagged, formats may change.
const FIRST: &str = "v0.2.0";

/// The directory of the earlier release.
const DIRECTORY: &str = "target/earlier";

/// The reason why the test is suspended.
pub(crate) const SUSPENDED: &str = "storage formats may change until version 0.2.0 is tagged";

/// Runs `cargo xtask n-minus-one`.
pub(crate) fn run() -> TaskResult {
    let Some(commit) = earlier() else {
        eprintln!("▶ n-minus-one: skipped: {SUSPENDED}");
        return Ok(());
    };
    run_beside(&commit)
}

/// Builds the earlier release, and runs both releases on one store.
pub(crate) fn run_beside(commit: &str) -> TaskResult {
    let binary = build(commit)?;
    // The same build as that of `cargo xtask test`: other features would rebuild the whole workspace.
    let test =
        ["test", "--workspace", "--all-features", "--test", "it", "cluster::earlier", "--", "--nocapture"];
    cargo(&test, &[("HOLDOFF_TEST_EARLIER", &binary.display().to_string())])
}

/// Returns the commit of the last release before this one; `None` before version 0.2.0.
pub(crate) fn earlier() -> Option<String> {
    git(&["rev-parse", "--verify", "--quiet", &format!("{FIRST}^{{commit}}")])?;
    let name = git(&["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"])?;
    git(&["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds the earlier release and returns its binary. The build uses the same target directory, so that it
/// shares the dependencies. The binary is then moved, because the next build would overwrite it.
fn build(commit: &str) -> Result<PathBuf, String> {
    let directory = root().join(DIRECTORY);
    let (source, binary) = (directory.join(commit), directory.join(format!("holdoff-{commit}")));
    if binary.exists() {
        return Ok(binary);
    }
    unpack(commit, &source)?;
    let target = root().join("target");
    let manifest = source.join("Cargo.toml").display().to_string();
    let build = ["build", "--locked", "--package", "holdoff-cli", "--manifest-path", &manifest];
    cargo(&build, &[("CARGO_TARGET_DIR", &target.display().to_string())])?;
    let built = target.join("debug/holdoff");
    std::fs::copy(&built, &binary).map_err(|error| format!("cannot move {}: {error}", built.display()))?;
    std::fs::remove_dir_all(&source).map_err(|error| error.to_string())?;
    Ok(binary)
}

/// Extracts the files of a commit without changing the clone.
fn unpack(commit: &str, into: &Path) -> TaskResult {
    std::fs::create_dir_all(into).map_err(|error| error.to_string())?;
    let archive =
        Command::new("git").args(["archive", commit]).current_dir(root()).stdout(Stdio::piped()).spawn();
    let mut archive = archive.map_err(|error| format!("cannot run git: {error}"))?;
    let pipe = archive.stdout.take().ok_or("git archive has no output")?;
    let unpacked = Command::new("tar").arg("-x").current_dir(into).stdin(pipe).status();
    let unpacked = unpacked.map_err(|error| format!("cannot run tar: {error}"))?.success();
    let archived = archive.wait().map_err(|error| error.to_string())?.success();
    if unpacked && archived { Ok(()) } else { Err(format!("cannot unpack {commit}")) }
}
