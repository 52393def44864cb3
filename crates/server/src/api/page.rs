//! Pagination of lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};

/// The default number of items on a page.
const USUAL: u32 = 100;
/// The most on a page.
pub(super) const MOST: u32 = 1000;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct Page<T: ToSchema> {
    items: Vec<T>,
    /// Where the next page begins, to be sent back as `cursor`. At the end there is none; before it, a page may have
    /// fewer items than were asked for.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl<T: ToSchema> Page<T> {
    /// A page, and what it ended with if there may be more.
    pub(super) fn new(items: Vec<T>, end: Option<String>) -> Self {
        Self { items, next: end.map(|end| URL_SAFE_NO_PAD.encode(end)) }
    }
}

/// Returns the requested number of items, or the default.
pub(super) fn limit(wanted: Option<u32>) -> Result<u32, Problem> {
    match wanted.unwrap_or(USUAL) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(Problem::new(Kind::InvalidQuery, format!("limit: expected 1 to {MOST}"))),
    }
}

/// Returns the cursor at which the previous page ended, parsed by `read`.
pub(super) fn after<T>(
    cursor: Option<&str>,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let end = bytes.and_then(|bytes| read(std::str::from_utf8(&bytes).ok()?));
    let strange =
        || Problem::new(Kind::InvalidQuery, "cursor: expected the `next` of a page before, as it was");
    end.map(Some).ok_or_else(strange)
}
