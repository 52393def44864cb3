//! The peers that are Rust crates: `graphile_worker` and River. Cargo builds each in a workspace of its own.

use std::path::PathBuf;
use std::process::Command;

use super::SUBMIT_BATCH;
use super::contestant::{Contestant, Unfinished, installed, run, sources};
use super::graphile;

/// A Rust crate as a contestant.
pub(super) struct Rust {
    name: &'static str,
    folder: &'static str,
    unfinished: Unfinished,
}

/// The crate `graphile_worker`.
pub(super) const GRAPHILE: Rust =
    Rust { name: "graphile_worker (Rust)", folder: "graphile-rs", unfinished: graphile::UNFINISHED };

/// The crate `riverqueue`. Its table keeps finished jobs.
pub(super) const RIVER: Rust = Rust {
    name: "riverqueue (Rust)",
    folder: "river-rs",
    unfinished: Unfinished {
        table: "river_job",
        id: "id",
        condition: "state in ('available', 'pending', 'retryable', 'running', 'scheduled')",
    },
};

impl Rust {
    fn home() -> Result<PathBuf, String> {
        Ok(installed()?.join("cargo"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let program = format!("peer-{}", self.folder);
        let mut program = Command::new(Self::home().unwrap_or_default().join("release").join(program));
        program.args(arguments);
        program
    }
}

impl Contestant for Rust {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn install(&self) -> Result<(), String> {
        let manifest = sources().join(self.folder).join("Cargo.toml");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest);
        run(cargo.arg("--target-dir").arg(Self::home()?))
    }

    fn migrate(&self, url: &str) -> Command {
        self.command(&["migrate", url])
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        self.command(&["submit", url, &jobs.to_string(), &SUBMIT_BATCH.to_string()])
    }

    fn work(&self, url: &str) -> Command {
        self.command(&["work", url])
    }

    fn unfinished(&self) -> Unfinished {
        self.unfinished
    }
}
