//! The peer graphile-worker for Node.

use std::path::PathBuf;
use std::process::Command;

use super::SUBMIT_BATCH;
use super::contestant::{Contestant, Unfinished, installed, run, sources};

/// The crate of that name stores its jobs in the same table.
pub(super) const UNFINISHED: Unfinished =
    Unfinished { table: "graphile_worker._private_jobs", id: "id", condition: "true" };

/// graphile-worker for Node, installed by npm.
pub(super) struct Node {
    pub(super) is_batched: bool,
}

impl Node {
    fn home() -> Result<PathBuf, String> {
        Ok(installed()?.join("graphile"))
    }

    fn command(arguments: &[&str]) -> Command {
        let mut node = Command::new("node");
        node.arg(Self::home().unwrap_or_default().join("graphile.mjs")).args(arguments);
        node
    }
}

impl Contestant for Node {
    fn name(&self) -> String {
        let how = if self.is_batched { "batched" } else { "unbatched" };
        format!("graphile-worker, {how}")
    }

    fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// Node resolves packages relative to the script, so the script is copied to the packages.
    fn install(&self) -> Result<(), String> {
        let home = Self::home()?;
        std::fs::create_dir_all(&home).map_err(|error| format!("cannot make a directory: {error}"))?;
        for name in ["package.json", "graphile.mjs"] {
            let copied = std::fs::copy(sources().join(name), home.join(name));
            copied.map_err(|error| format!("cannot copy {name}: {error}"))?;
        }
        let mut npm = Command::new("npm");
        run(npm.args(["install", "--no-audit", "--no-fund", "--prefer-offline"]).current_dir(home))
    }

    fn migrate(&self, url: &str) -> Command {
        Self::command(&["migrate", url])
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        Self::command(&["submit", url, &jobs.to_string(), &SUBMIT_BATCH.to_string()])
    }

    fn work(&self, url: &str) -> Command {
        Self::command(&["work", url, if self.is_batched { "batched" } else { "unbatched" }])
    }

    fn unfinished(&self) -> Unfinished {
        UNFINISHED
    }
}
