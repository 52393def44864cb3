//! Directories that only their owner can read.

use std::io;
use std::path::Path;

/// Creates a directory and its missing parents, which only their owner can read. Existing directories are
/// unchanged.
pub fn create(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Syncs the parent directory. A new file survives a crash only after its directory entry is on disk.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) { std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}
