//! axe-core, by which the pages are held against what people need who do not see, hear or point.
//!
//! It is installed from npm into a folder of its own under `target/`, once, and is no part of what is shipped.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Done, root};

/// The version that is installed.
const VERSION: &str = "4.14.0";

/// By which the tests are told where it is.
pub(crate) const VARIABLE: &str = "AXE_CORE";

pub(crate) fn run() -> Done {
    let path = install()?;
    eprintln!("▶ axe-core {VERSION} is in {}", path.display());
    Ok(())
}

/// The script; installed if it is not there.
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
