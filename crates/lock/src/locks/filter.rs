//! The filter of a listing.

use crate::store::{Listing, Mark};

/// The filter of a listing. The default selects all locks, and returns at most a hundred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    namespace: Option<String>,
    held: bool,
    prefix: String,
    after: Option<Mark>,
    limit: u32,
}

impl Default for Filter {
    fn default() -> Self {
        Self { namespace: None, held: false, prefix: String::new(), after: None, limit: 100 }
    }
}

impl Filter {
    /// Selects only locks of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Selects only held locks.
    #[must_use]
    pub fn held(mut self) -> Self {
        self.held = true;
        self
    }

    /// Selects only locks whose readable key starts with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Selects only locks after this one in the order of the list: its namespace, its key and its digest.
    #[must_use]
    pub fn after(mut self, namespace: &str, key: &str, digest: &str) -> Self {
        let [namespace, key, digest] = [namespace, key, digest].map(str::to_owned);
        self.after = Some(Mark { namespace, key, digest });
        self
    }

    /// Sets the maximum number of locks returned.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    pub(super) fn listing(&self) -> Listing {
        let Self { namespace, held, prefix, after, limit } = self.clone();
        Listing { namespace, held, prefix, after, limit }
    }
}
