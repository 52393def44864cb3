//! Reading the policies again.

use std::fmt;
use std::sync::Arc;

use holdoff_policy::PolicySet;

type Read = dyn Fn() -> Result<PolicySet, String> + Send + Sync;

/// How to read the policy file again, with everything checked; or what is wrong with it.
#[derive(Clone)]
pub struct Reload(Arc<Read>);

impl Reload {
    /// Reads by this.
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
