//! Check that a form comes from a page of this daemon.
//!
//! A browser sends cookies with forms of any site, and lets any page reach loopback. But it reports the origin of the
//! form: in `Sec-Fetch-Site` if the connection is trustworthy, and always in `Origin`.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// Returns whether the request comes from a page of this daemon.
pub(super) fn is_ours(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, from)| Some(from) == text(HOST.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(said: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            headers.insert(*name, value.parse().unwrap());
        }
        is_ours(&headers)
    }

    #[test]
    fn only_our_own_pages_send_forms() {
        assert!(with(&[("sec-fetch-site", "same-origin")]));
        for other in ["cross-site", "same-site", "none"] {
            assert!(!with(&[("sec-fetch-site", other), ("origin", "http://a:1"), ("host", "a:1")]));
        }
        assert!(with(&[("origin", "http://a:7070"), ("host", "a:7070")]));
        assert!(!with(&[("origin", "http://a:7071"), ("host", "a:7070")]));
        assert!(!with(&[("origin", "null"), ("host", "null")]));
        assert!(!with(&[("host", "a:7070")]));
    }
}
