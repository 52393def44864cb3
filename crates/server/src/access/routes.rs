//! Which route needs what.

use axum::http::Method;

use crate::keep::Scope;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nothing: it tells nobody anything.
    Nothing,
    /// A token.
    Scope {
        scope: Scope,
        /// Whether a token of one namespace will do, because the handler keeps to it.
        narrowed: bool,
    },
}

const fn narrow(scope: Scope) -> Need {
    Need::Scope { scope, narrowed: true }
}

const fn wide(scope: Scope) -> Need {
    Need::Scope { scope, narrowed: false }
}

/// Every route, and what it needs.
const ROUTES: &[(&str, &str, Need)] = &[
    ("GET", "/", wide(Scope::Read)),
    ("GET", "/healthz", Need::Nothing),
    ("GET", "/metrics", wide(Scope::Read)),
    ("GET", "/readyz", Need::Nothing),
    ("GET", "/style.css", Need::Nothing),
    ("GET", "/v1/audit", narrow(Scope::Admin)),
    ("GET", "/v1/locks", narrow(Scope::Read)),
    ("POST", "/v1/locks/acquire", narrow(Scope::Work)),
    ("POST", "/v1/locks/force-release", narrow(Scope::Admin)),
    ("POST", "/v1/locks/release", narrow(Scope::Work)),
    ("POST", "/v1/locks/renew", narrow(Scope::Work)),
    ("GET", "/v1/locks/show", narrow(Scope::Read)),
    ("POST", "/v1/signals", narrow(Scope::Work)),
    ("POST", "/v1/tasks", narrow(Scope::Work)),
    ("GET", "/v1/tasks/{id}", narrow(Scope::Read)),
];

/// What a request needs. A route that is not in the table is for administrators of everything; a path that leads
/// nowhere is for everybody who has a token, so that a typing error is told from a missing right.
pub(super) fn need_of(method: &Method, route: Option<&str>) -> Need {
    let Some(route) = route else { return narrow(Scope::Read) };
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let row = ROUTES.iter().find(|(known, path, _)| *known == method && *path == route);
    row.map_or(wide(Scope::Admin), |(_, _, need)| *need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_thought_of_is_for_administrators() {
        assert_eq!(need_of(&Method::GET, Some("/v1/new")), wide(Scope::Admin));
        assert_eq!(need_of(&Method::DELETE, Some("/v1/tasks/{id}")), wide(Scope::Admin));
        assert_eq!(need_of(&Method::HEAD, Some("/healthz")), Need::Nothing);
    }
}
