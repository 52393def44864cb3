//! Somebody who was let in, and how far they reach.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use holdoff_policy::PolicySet;

use crate::keep::{Deed, Scope, TokenRecord};
use crate::problem::{Kind, Problem};

/// Somebody who was let in. Handlers ask it which namespace a request is about.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Whoever can reach loopback, where no token is needed.
    Loopback,
    /// Whoever has this token.
    Token(Arc<TokenRecord>),
    /// Anybody, where nothing is told.
    Nobody,
}

impl Access {
    /// The namespace a request is about: the one that it names; else the token's own; else the default.
    pub(crate) fn namespace(&self, named: Option<String>) -> Result<String, Problem> {
        Ok(self.only(named)?.unwrap_or_else(|| PolicySet::DEFAULT_NAMESPACE.to_owned()))
    }

    /// The one namespace to look at, for what can look at all of them.
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

    /// Whether they may change what operators change.
    pub(crate) fn is_admin(&self) -> bool {
        match self {
            Self::Token(token) => token.scope == Scope::Admin,
            Self::Loopback => true,
            Self::Nobody => false,
        }
    }

    /// The token they came in by.
    pub(crate) fn token_id(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.id),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// The name of their token, if they need one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(&token.name),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// Whether they are let in, rather than nobody in particular.
    pub(crate) const fn is_known(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Whether they may know of something in this namespace.
    pub(crate) fn sees(&self, namespace: &str) -> bool {
        self.own().is_none_or(|own| own == namespace)
    }

    /// The one namespace they are confined to.
    pub(crate) fn own(&self) -> Option<&str> {
        match self {
            Self::Token(token) => token.namespace.as_deref(),
            Self::Loopback | Self::Nobody => None,
        }
    }

    /// Puts their name under what they did.
    pub(super) fn sign(&self, mut deed: Deed, request: Option<String>) -> Deed {
        (deed.who, deed.token) = match self {
            // A session signs as the token it was made from.
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
