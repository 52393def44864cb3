//! `cargo xtask api`: writes a listing of the public API of each library crate.
//!
//! The listings are golden files in `docs/api/`, reviewed like code; `cargo xtask tidy` fails if one is out of date. They show
//! the items that a user of the crate can name: functions with their signatures, types with their public fields, variants
//! and methods, traits with their members. Implementations of traits are not listed.

mod listing;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::run::{TaskResult, root};
use listing::Listing;
use tree::Module;

/// The directory of the listings.
const FOLDER: &str = "docs/api";

/// Runs `cargo xtask api`.
pub(crate) fn run() -> TaskResult {
    let folder = root().join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot create {FOLDER}: {error}"))?;
    for (name, text) in listings()? {
        let path = folder.join(format!("{name}.txt"));
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        eprintln!("wrote {FOLDER}/{name}.txt");
    }
    Ok(())
}

/// Compares the golden files with the code.
pub(crate) fn check() -> Vec<String> {
    let listings = match listings() {
        Ok(listings) => listings,
        Err(why) => return vec![why],
    };
    let mut findings = Vec::new();
    for (name, text) in listings {
        let path = format!("{FOLDER}/{name}.txt");
        if std::fs::read_to_string(root().join(&path)).ok() != Some(text) {
            findings.push(format!("{path} is out of date: run `cargo xtask api`"));
        }
    }
    findings
}

/// Returns the public types that each library crate declares, by the crate's name.
pub(crate) fn public_types() -> Result<Vec<(String, BTreeSet<String>)>, String> {
    Ok(libraries()?.into_iter().map(|(name, tree)| (name, Listing::of(&tree).types)).collect())
}

/// Returns the listing of every library crate, by the crate's name.
fn listings() -> Result<Vec<(String, String)>, String> {
    Ok(libraries()?.into_iter().map(|(name, tree)| (name, Listing::of(&tree).text)).collect())
}

/// Reads every library crate; returns its name and its modules.
fn libraries() -> Result<Vec<(String, Module)>, String> {
    let mut libraries = Vec::new();
    for folder in crates()? {
        let library = folder.join("src/lib.rs");
        if library.exists() {
            let name = package(&folder)?;
            let tree = Module::read(&name.replace('-', "_"), &library)?;
            libraries.push((name, tree));
        }
    }
    Ok(libraries)
}

fn crates() -> Result<Vec<PathBuf>, String> {
    let folder = root().join("crates");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("cannot read crates: {error}"))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    folders.sort();
    Ok(folders)
}

fn package(folder: &Path) -> Result<String, String> {
    let path = folder.join("Cargo.toml");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let manifest: toml::Table = text.parse().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.map(str::to_owned).ok_or_else(|| format!("{} has no name", path.display()))
}
