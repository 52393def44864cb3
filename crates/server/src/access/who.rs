//! An authenticated caller and the extent of its access.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use holdoff_policy::PolicySet;

use crate::keep::{Deed, Scope, TokenRecord};
use crate::problem::{Kind, Problem};

/// An authenticated caller. Handlers ask it for the namespace of a request.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// A caller on loopback, where no token is needed.
    Loopback,
    /// A caller with this token.
    Token(Arc<TokenRecord>),
    /// An anonymous caller on a route that reveals nothing.
    Nobody,
}

impl Access {
    /// Returns the namespace of a request: the named one, else the token's own, else the default namespace.
    pub(crate) fn namespace(&self, named: Option<String>) -> Result<String, Problem> {
        Ok(self.only(named)?.unwrap_or_else(|| PolicySet::DEFAULT_NAMESPACE.to_owned()))
    }

    /// Returns the namespace that a query is confined to, or `None` if it covers all namespaces.
    pub(crate) fn only(&self, named: Option<String>) -> Result<Option<String>, Problem> {
        match (self.own(), named) {
            (None, named) => Ok(named),
            (Some(own), None) => Ok(Some(own.to_owned())),
            (Some(own), Some(named)) if named == own => Ok(Some(named)),
            (Some(_), Some(_)) => {
                let detail = "this API token is for another namespace than the one that the request names";
                Err(Problem::new(Kind::Forbidden, detail))
            }
        }
    }

    /// Returns whether the caller may perform the actions of operators.
    pub(crate) fn is_admin(&self) -> bool {
        match self {
            Self::Token(token) => token.scope == Scope::Admin,
            Self::Loopback => true,
            Self::Nobody => false,
        }
    }

    /// Returns the id of the caller's token.
    pub(crate) fn token_id(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.id),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// Returns the name of the caller's token, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.name),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// Returns whether the caller is authenticated or on loopback.
    pub(crate) const fn is_known(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Returns whether the caller may see objects of this namespace.
    pub(crate) fn sees(&self, namespace: &str) -> bool {
        self.own().is_none_or(|own| own == namespace)
    }

    /// Returns the namespace that the caller is confined to, if its token has one.
    pub(crate) fn own(&self) -> Option<&str> {
        match self {
            Self::Token(token) => token.namespace.as_deref(),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// Sets the caller and the request id of an audit event.
    pub(super) fn sign(&self, mut deed: Deed, request: Option<String>) -> Deed {
        (deed.who, deed.token) = match self {
            // An action of a session is recorded under the token that the session derives from.
            Self::Token(token) => {
                (token.name.clone(), Some(token.session_of.as_ref().unwrap_or(&token.id).clone()))
            }
            Self::Loopback => ("loopback".to_owned(), None),
            Self::Nobody => ("nobody".to_owned(), None),
        };
        deed.request = request;
        deed
    }
}

impl<S: Sync> FromRequestParts<S> for Access {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let unasked = || Problem::new(Kind::Internal, "nobody asked who this request is from");
        parts.extensions.get::<Self>().cloned().ok_or_else(unasked)
    }
}
