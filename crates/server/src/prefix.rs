//! The path prefix of a proxy that also serves other applications.

use std::sync::Arc;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// The path prefix: empty, or `/` and a name. Both kinds of proxies work: those that strip the prefix and those that
/// forward it.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Strips the prefix, if it is present.
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
            // A longer name that only begins with the prefix.
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
