//! Finds the library that gives a process a wrong clock.

use std::path::{Path, PathBuf};

/// Returns the library to preload so that `FAKETIME` applies to a process, if it is installed (Debian's
/// package `faketime`).
///
/// Also set `FAKETIME_DONT_FAKE_MONOTONIC=1`: a wrong wall clock is a realistic fault, a wrong monotonic
/// clock is not.
pub fn libfaketime() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let here = Path::new("faketime/libfaketimeMT.so.1");
    libraries.map(|folder| folder.join(here)).find(|library| library.is_file())
}
