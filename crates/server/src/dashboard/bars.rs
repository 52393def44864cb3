//! Short lists with a bar each: who has the most of something.

use super::words;

/// A name, how many, and how much that is of the largest.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) count: u64,
    /// In per cent.
    pub(super) width: String,
    /// Where more is told; nothing if nowhere.
    pub(super) link: String,
    /// A word more.
    pub(super) note: String,
}

/// Bars for these, in their order.
pub(super) fn bars(items: Vec<(String, u64, String, String)>) -> Vec<Bar> {
    let most = items.iter().map(|(_, count, ..)| *count).max().unwrap_or(0);
    let bar = |(name, count, link, note)| Bar { name, count, width: words::percent(count, most), link, note };
    items.into_iter().map(bar).collect()
}
