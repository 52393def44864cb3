//! The access requirement of a request. The API's document defines the requirement of each route.

use crate::keep::Scope;

/// The access requirement of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// No token: the response reveals nothing.
    Nothing,
    /// No token. A caller with a token gets more details.
    Offered,
    /// A token of at least this scope.
    Scope {
        scope: Scope,
        /// Whether a token of one namespace suffices, because the handler confines itself to that namespace.
        narrowed: bool,
    },
}
