//! An authenticated caller and the extent of its access.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use holdoff_policy::PolicySet;

use crate::problem::{Kind, Problem};
use crate::token_store::{AuditEvent, TokenRecord, TokenScope};

/// An authenticated caller. Handlers ask it for the namespace of a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// A caller on loopback, where no token is needed.
    Loopback,
    /// A caller with this token.
    Token(Arc<TokenRecord>),
    /// An anonymous caller on a route that reveals nothing.
    Anonymous,
}

impl Caller {
    /// Returns the namespace of a request: the named one, else the token's own, else the default namespace.
    pub(crate) fn namespace(&self, named: Option<String>) -> Result<String, Problem> {
        Ok(self.namespace_filter(named)?.unwrap_or_else(|| PolicySet::DEFAULT_NAMESPACE.to_owned()))
    }

    /// Returns the namespace that a query is confined to, or `None` if it covers all namespaces.
    pub(crate) fn namespace_filter(&self, named: Option<String>) -> Result<Option<String>, Problem> {
        // No store keeps such a namespace, Postgres not even in a query.
        if named.as_deref().is_some_and(|name| name.chars().any(char::is_control)) {
            return Err(Problem::new(
                Kind::InvalidQuery,
                "namespace: expected a name without control characters",
            ));
        }
        match (self.own_namespace(), named) {
            (None, named) => Ok(named),
            (Some(mine), None) => Ok(Some(mine.to_owned())),
            (Some(mine), Some(named)) if named == mine => Ok(Some(named)),
            (Some(_), Some(_)) => {
                let detail = "this API token is limited to another namespace than the one in the request";
                Err(Problem::new(Kind::Forbidden, detail))
            }
        }
    }

    /// Returns whether the caller may perform the actions of operators.
    pub(crate) fn is_admin(&self) -> bool {
        match self {
            Self::Token(token) => token.scope == TokenScope::Admin,
            Self::Loopback => true,
            Self::Anonymous => false,
        }
    }

    /// Returns the id of the caller's token.
    pub(crate) fn token_id(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.id),
            Self::Loopback | Self::Anonymous => None,
        }
    }

    /// Returns the name of the caller's token, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.name),
            Self::Loopback | Self::Anonymous => None,
        }
    }

    /// Returns whether the caller is authenticated or on loopback.
    pub(crate) const fn is_known(&self) -> bool {
        !matches!(self, Self::Anonymous)
    }

    /// Returns whether the caller may see objects of this namespace.
    pub(crate) fn may_see(&self, namespace: &str) -> bool {
        self.own_namespace().is_none_or(|mine| mine == namespace)
    }

    /// Returns the namespace that the caller is confined to, if its token has one.
    pub(crate) fn own_namespace(&self) -> Option<&str> {
        match self {
            Self::Token(token) => token.namespace.as_deref(),
            Self::Loopback | Self::Anonymous => None,
        }
    }

    /// Sets the caller and the request id of an audit event.
    pub(super) fn attribute(&self, mut event: AuditEvent, request: Option<String>) -> AuditEvent {
        (event.actor, event.token) = match self {
            // An action of a session is recorded under the token that the session derives from.
            Self::Token(token) => {
                (token.name.clone(), Some(token.session_of.as_ref().unwrap_or(&token.id).clone()))
            }
            Self::Loopback => ("loopback".to_owned(), None),
            Self::Anonymous => ("anonymous".to_owned(), None),
        };
        event.request = request;
        event
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let unauthenticated = || Problem::new(Kind::Internal, "the request was not authenticated");
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthenticated)
    }
}
