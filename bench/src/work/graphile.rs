//! The peers: graphile-worker for Node, and the Rust crate of that name.

use std::path::PathBuf;
use std::process::Command;

use super::SUBMIT_BATCH;
use super::contestant::{Contestant, Unfinished, installed, run, sources};

/// Both store their jobs in the same table.
const UNFINISHED: Unfinished = Unfinished { table: "graphile_worker._private_jobs", id: "id" };

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

/// The Rust crate `graphile_worker`, built by cargo.
pub(super) struct Rust;

impl Rust {
    fn home() -> Result<PathBuf, String> {
        Ok(installed()?.join("cargo"))
    }

    fn command(arguments: &[&str]) -> Command {
        let mut program =
            Command::new(Self::home().unwrap_or_default().join("release").join("peer-graphile-rs"));
        program.args(arguments);
        program
    }
}

impl Contestant for Rust {
    fn name(&self) -> String {
        "graphile_worker (Rust)".to_owned()
    }

    fn install(&self) -> Result<(), String> {
        let manifest = sources().join("graphile-rs").join("Cargo.toml");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest);
        run(cargo.arg("--target-dir").arg(Self::home()?))
    }

    fn migrate(&self, url: &str) -> Command {
        Self::command(&["migrate", url])
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        Self::command(&["submit", url, &jobs.to_string(), &SUBMIT_BATCH.to_string()])
    }

    fn work(&self, url: &str) -> Command {
        Self::command(&["work", url])
    }

    fn unfinished(&self) -> Unfinished {
        UNFINISHED
    }
}
