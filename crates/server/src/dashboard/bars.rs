//! Short lists with a bar each, the largest first.

use super::words;

/// A name, its count, and the count as a share of the largest.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) count: u64,
    /// The width, in per cent.
    pub(super) width: String,
    /// The link to the details; empty if there is none.
    pub(super) link: String,
    /// An additional note.
    pub(super) note: String,
}

/// Builds the bars of these items, in their order.
pub(super) fn bars(items: Vec<(String, u64, String, String)>) -> Vec<Bar> {
    let most = items.iter().map(|(_, count, ..)| *count).max().unwrap_or(0);
    let bar = |(name, count, link, note)| Bar { name, count, width: words::percent(count, most), link, note };
    items.into_iter().map(bar).collect()
}
