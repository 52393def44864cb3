//! The path that a proxy puts before everything, where it serves others beside us.

use std::sync::Arc;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// What stands before every path: nothing, or `/` and a name. Proxies that take it away and proxies that leave it are
/// both understood.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Takes it away, if it is there.
    pub(crate) fn strip(&self, uri: &mut Uri) {
        if self.0.is_empty() {
            return;
        }
        let Some(rest) = uri.path_and_query().and_then(|all| all.as_str().strip_prefix(&*self.0)) else {
            return;
        };
        let rest = match rest.chars().next() {
            Some('/') => rest.to_owned(),
            None | Some('?') => format!("/{rest}"),
            // A longer name that only begins alike.
            Some(_) => return,
        };
        let mut parts = std::mem::take(uri).into_parts();
        parts.path_and_query = rest.parse::<PathAndQuery>().ok();
        *uri = Uri::from_parts(parts).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_away_where_it_is() {
        let stripped = |text: &str| {
            let mut uri = text.parse().unwrap();
            Prefix::new("/ops/holdoff").strip(&mut uri);
            uri.to_string()
        };
        assert_eq!(stripped("/ops/holdoff/steps?state=failed"), "/steps?state=failed");
        assert_eq!(stripped("/ops/holdoff"), "/");
        assert_eq!(stripped("/ops/holdoff?a=b"), "/?a=b");
        assert_eq!(stripped("/ops/holdoffs/x"), "/ops/holdoffs/x");
        assert_eq!(stripped("/steps"), "/steps");
    }
}
