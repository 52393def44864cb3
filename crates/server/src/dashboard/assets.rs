//! Static files of the pages: styles, scripts and an icon. All of them are part of the binary.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::chrome::Visitor;
use crate::problem::{Kind, Problem};
use crate::token_store::hex;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, content type and content.
const ASSETS: [(&str, &str, &[u8]); 7] = [
    ("style.css", STYLE, include_bytes!("../../assets/style.css")),
    ("uplot.min.css", STYLE, include_bytes!("../../assets/uplot.min.css")),
    ("htmx.min.js", SCRIPT, include_bytes!("../../assets/htmx.min.js")),
    ("uplot.min.js", SCRIPT, include_bytes!("../../assets/uplot.min.js")),
    ("live.js", SCRIPT, include_bytes!("../../assets/live.js")),
    ("plot.js", SCRIPT, include_bytes!("../../assets/plot.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];

/// A short digest of all static files. It is part of their URLs, so that a browser may cache them forever.
static EDITION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for (name, _, bytes) in ASSETS {
        hash.update(name);
        hash.update(bytes);
    }
    hex(&hash.finalize()).chars().take(12).collect()
});

pub(crate) fn edition() -> &'static str {
    &EDITION
}

/// Returns a static file: a style sheet, a script or the icon.
#[utoipa::path(get, path = "/assets/{name}", tag = "pages", security(()),
    params(("name" = String, Path, description = "The name.")), responses((status = 200, description = "The file.")))]
pub(super) async fn asset(
    Path(name): Path<String>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, bytes) = found.ok_or_else(|| Problem::new(Kind::NotFound, "unknown static file"))?;
    // During an upgrade, a page of another release may request its own files from this one.
    let is_ours = visitor.query.get("v") == edition();
    let cache_control = if is_ours { "public, max-age=31536000, immutable" } else { "no-cache" };
    let etag = format!("\"{}\"", edition());
    let headers_out = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static(cache_control)),
        (ETAG, HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"\""))),
    ];
    if headers.get(IF_NONE_MATCH).is_some_and(|seen| *seen == etag) {
        return Ok((StatusCode::NOT_MODIFIED, headers_out).into_response());
    }
    Ok((headers_out, *bytes).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_party_assets_match_their_checksums() {
        let sums = include_str!("../../assets/SHA256SUMS");
        assert_eq!(sums.lines().count(), 3);
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let (_, _, bytes) = ASSETS.iter().find(|(known, ..)| *known == name).unwrap();
            let found = hex(&Sha256::digest(bytes));
            assert_eq!(found, sum, "{name}");
            assert!(include_str!("../../assets/LICENSES.md").contains(&format!("`{name}`")), "{name}");
        }
    }

    /// Adds up a page and all files that it loads, before compression.
    #[test]
    fn all_assets_together_are_below_150_kb() {
        let weight: usize = ASSETS.iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(weight < 150_000, "{weight} bytes");
    }
}
