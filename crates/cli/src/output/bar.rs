//! A delay window as a text bar.

use super::style::{BAR, FAINT};

/// Draws a window `[low, high]` on an axis from 0 to `end`, `width` characters wide.
pub(crate) fn bar(low: u64, high: u64, end: u64, width: usize) -> String {
    let position = |value: u64| -> usize {
        let scaled = u128::from(value) * width as u128 / u128::from(end.max(1));
        usize::try_from(scaled).unwrap_or(width).min(width)
    };
    // A window of zero width stays visible.
    let start = position(low).min(width.saturating_sub(1));
    let length = position(high).saturating_sub(start).max(1);
    let rest = width.saturating_sub(start + length);
    let dots = |count| format!("{FAINT}{}{FAINT:#}", "·".repeat(count));
    format!("{}{BAR}{}{BAR:#}{}", dots(start), "█".repeat(length), dots(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(low: u64, high: u64) -> String {
        anstream::adapter::strip_str(&bar(low, high, 10, 10)).to_string()
    }

    #[test]
    fn windows_lie_where_they_should() {
        assert_eq!(plain(0, 10), "██████████");
        assert_eq!(plain(2, 6), "··████····");
        assert_eq!(plain(0, 0), "█·········");
        assert_eq!(plain(10, 10), "·········█");
    }
}
