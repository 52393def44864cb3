//! `cargo xtask openapi`: regenerates the API document.

use crate::run::{Done, cargo};

/// The path of the API document.
const DOCUMENT: &str = "docs/openapi.json";

pub(crate) fn run() -> Done {
    let test = ["test", "--quiet", "-p", "holdoff-server", "--lib", "openapi::tests::the_file_is_up_to_date"];
    cargo(&test, &[("UPDATE_OPENAPI", "1")])?;
    eprintln!("wrote {DOCUMENT}");
    Ok(())
}
