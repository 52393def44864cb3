//! axe-core, which checks the accessibility of the pages.
//!
//! It is installed once from npm into its own directory under `target/`, and is not part of the product.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Done, root};

/// The installed version.
const VERSION: &str = "4.14.0";

/// The environment variable with the path of the script, for the tests.
pub(crate) const VARIABLE: &str = "AXE_CORE";

pub(crate) fn run() -> Done {
    let path = install()?;
    eprintln!("▶ axe-core {VERSION} is in {}", path.display());
    Ok(())
}

/// Returns the script, and installs it if necessary.
pub(crate) fn install() -> Result<PathBuf, String> {
    let folder = root().join("target/axe");
    let package = folder.join("node_modules/axe-core");
    let script = package.join("axe.min.js");
    let about = std::fs::read_to_string(package.join("package.json")).unwrap_or_default();
    if script.exists() && about.contains(&format!("\"version\": \"{VERSION}\"")) {
        return Ok(script);
    }
    eprintln!("▶ installing axe-core {VERSION} from npm into target/axe");
    let status = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(&folder)
        .arg(format!("axe-core@{VERSION}"))
        .current_dir(root())
        .status();
    match status {
        Ok(status) if status.success() && script.exists() => Ok(script),
        Ok(_) => {
            Err(format!("npm cannot install axe-core@{VERSION} into target/axe; its own words are above"))
        }
        Err(error) => Err(format!("cannot run npm: {error}; install it")),
    }
}
