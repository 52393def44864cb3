//! Directories that only their owner may look into.

use std::io;
use std::path::Path;

/// Makes a directory, and those above it, which only their owner may look into. Those that are there stay as they are.
pub fn make(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// A new file is there after a crash only once its directory says so: this waits until it does.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) { std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}
