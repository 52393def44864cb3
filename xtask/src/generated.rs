//! `cargo xtask schema` and `cargo xtask openapi`: regenerate the generated files.

use std::process::Command;

use crate::run::{TaskResult, cargo, root};

/// The path of the JSON schema of the policy file.
const SCHEMA: &str = "docs/holdoff.schema.json";

/// The path of the API document.
const DOCUMENT: &str = "docs/openapi.json";

/// Runs `cargo xtask schema`.
pub(crate) fn schema() -> TaskResult {
    let vectors =
        ["test", "--quiet", "-p", "holdoff-policy", "--test", "it", "vectors::the_file_is_up_to_date"];
    cargo(&vectors, &[("UPDATE_VECTORS", "1")])?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "-p", "holdoff-cli", "--", "config", "schema"])
        .current_dir(root())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::write(root().join(SCHEMA), output.stdout).map_err(|error| error.to_string())?;
    eprintln!("wrote {SCHEMA} and crates/policy/vectors/v1.json");
    Ok(())
}

/// Runs `cargo xtask openapi`.
pub(crate) fn openapi() -> TaskResult {
    let test = [
        "test",
        "--quiet",
        "-p",
        "holdoff-server",
        "--lib",
        "openapi::tests::the_openapi_file_is_up_to_date",
    ];
    cargo(&test, &[("UPDATE_OPENAPI", "1")])?;
    eprintln!("wrote {DOCUMENT}");
    Ok(())
}
