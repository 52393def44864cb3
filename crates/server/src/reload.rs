//! Reading the policy file again.

use std::fmt;
use std::sync::Arc;

use holdoff_policy::PolicySet;

type Read = dyn Fn() -> Result<PolicySet, String> + Send + Sync;

/// A function that reads and validates the policy file again, or returns the problems.
#[derive(Clone)]
pub struct Reload(Arc<Read>);

impl Reload {
    /// Creates it from this function.
    pub fn new(read: impl Fn() -> Result<PolicySet, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<PolicySet, String> {
        (self.0)()
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}
