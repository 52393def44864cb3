//! What a request needs. Which route needs what stands in the API's document.

use crate::keep::Scope;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Nothing: it tells nobody anything.
    Nothing,
    /// Nothing; but who shows a token is told more.
    Offered,
    /// A token.
    Scope {
        scope: Scope,
        /// Whether a token of one namespace will do, because the handler keeps to it.
        narrowed: bool,
    },
}
