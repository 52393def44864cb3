//! The reason why a disk has failed.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The reason why an operation on a disk has failed: an error of the file, or a content that cannot be read. Clones share the
/// source.
#[derive(Clone, Debug)]
pub struct DiskError {
    context: Option<Arc<str>>,
    source: Arc<dyn Error + Send + Sync>,
}

impl DiskError {
    /// Creates the reason from an error, or from a text.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { context: None, source: Arc::from(source.into()) }
    }

    /// Creates the reason from an error, and says where it has occurred.
    pub fn within(context: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { context: Some(Arc::from(context)), ..Self::new(source) }
    }

    /// Creates the reason from an error of a file.
    pub fn at(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::within(&path.display().to_string(), source)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Some(context) => write!(f, "{context}: {}", self.source),
            None => self.source.fmt(f),
        }
    }
}

impl Error for DiskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Two reasons are equal if their texts are.
impl PartialEq for DiskError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for DiskError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_kept() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let reason = DiskError::at(Path::new("/data/a.redb"), full);
        assert_eq!(reason.to_string(), "/data/a.redb: no storage space");
        let source = reason.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::StorageFull));
        assert_eq!(reason, reason.clone());
    }
}
