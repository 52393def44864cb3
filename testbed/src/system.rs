//! Finds installed programs and free ports: Postgres, libfaketime, a port on loopback.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that names the directory of Postgres' server binaries.
pub const BINARIES_VARIABLE: &str = "HOLDOFF_TEST_POSTGRES_BIN";

/// Debian's parent directory of one directory per version; none of them is in the default `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs that a test cluster requires.
const PROGRAMS: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// Below the range for outgoing connections, so that no other program takes the port while its server
/// restarts.
const FIRST_PORT: u32 = 20_000;
const PORT_COUNT: u32 = 12_000;

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
    PROGRAMS.iter().all(|program| directory.join(program).is_file())
}

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

/// Returns the next free port on loopback. Another process may take it first; then call again.
pub fn free_port() -> u16 {
    // Processes start at different ports, to collide less often.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    let ports = (0..PORT_COUNT)
        .map(|_| FIRST_PORT + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORT_COUNT);
    let mut ports = ports.filter_map(|port| u16::try_from(port).ok());
    ports
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port on loopback")
}
