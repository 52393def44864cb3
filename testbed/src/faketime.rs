//! Where the library is that gives a process a wrong clock.

use std::path::{Path, PathBuf};

/// The library to preload so that a process believes `FAKETIME`, if it is installed (Debian's package `faketime`).
///
/// Set `FAKETIME_DONT_FAKE_MONOTONIC=1` beside it: a wrong wall clock is a fault, a wrong monotonic clock is none
/// that happens.
pub fn libfaketime() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let here = Path::new("faketime/libfaketimeMT.so.1");
    libraries.map(|folder| folder.join(here)).find(|library| library.is_file())
}
