//! Finds the installation of Postgres.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The environment variable that names the directory of Postgres' server binaries.
pub const BINARIES_VARIABLE: &str = "HOLDOFF_TEST_POSTGRES_BIN";

/// Debian's parent directory of one directory per version; none of them is in the default `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs that a test cluster requires.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// Returns the directory of Postgres' server and client programs, if they are installed.
///
/// The search order is: the variable [`BINARIES_VARIABLE`], if it is set; then `PATH`; then Debian's highest
/// version.
pub fn postgres_binaries() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(BINARIES_VARIABLE) {
        return Some(PathBuf::from(named)).filter(|directory| is_complete(directory));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    in_path(&path).or_else(|| highest_version(Path::new(DEBIAN)))
}

/// Searches `PATH`. It may contain links to only some of the programs, so the search follows the links.
fn in_path(path: &OsStr) -> Option<PathBuf> {
    let found =
        std::env::split_paths(path).filter_map(|directory| directory.join("initdb").canonicalize().ok());
    found.filter_map(|program| program.parent().map(Path::to_owned)).find(|directory| is_complete(directory))
}

fn highest_version(home: &Path) -> Option<PathBuf> {
    let version = |directory: &Path| directory.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = std::fs::read_dir(home).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let numbered = versions.filter_map(|directory| Some((version(&directory)?, directory.join("bin"))));
    numbered.filter(|(_, directory)| is_complete(directory)).max().map(|(_, directory)| directory)
}

fn is_complete(directory: &Path) -> bool {
    NEEDED.iter().all(|program| directory.join(program).is_file())
}
