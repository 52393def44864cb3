//! Where Postgres is installed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The environment variable that names the directory of Postgres' server binaries.
pub const BINARIES_VARIABLE: &str = "HOLDOFF_TEST_POSTGRES_BIN";

/// Where Debian keeps one directory per version; none of them is in anybody's `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// What a cluster cannot be made and asked without.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// The directory with Postgres' server and client programs, if they are installed.
///
/// The variable [`BINARIES_VARIABLE`] decides if it is set; then `PATH`, then Debian's highest version.
pub fn postgres_binaries() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(BINARIES_VARIABLE) {
        return Some(PathBuf::from(named)).filter(|directory| is_complete(directory));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    in_path(&path).or_else(|| highest_version(Path::new(DEBIAN)))
}

/// A `PATH` may hold links to some of the programs only, so the search goes on where they lead.
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
