//! One figure compared with a peer's.

use serde::Serialize;

/// One figure compared with a peer's, and its bar.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// NaN if nothing was measured.
    pub(crate) ours: f64,
    pub(crate) peer: f64,
    pub(crate) peer_name: String,
    /// `None` if the peer's figure is too small to divide by, or ours is missing.
    pub(crate) ratio: Option<f64>,
    pub(crate) bar: String,
    pub(crate) holds: bool,
}

impl Row {
    /// Creates a row that compares with a peer, without a bar.
    pub(crate) fn beside(name: &str, unit: &'static str, ours: f64, (peer_name, peer): (&str, f64)) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            ours,
            peer,
            peer_name: peer_name.to_owned(),
            ratio: (peer > 0.1 && ours.is_finite()).then_some(ours / peer),
            bar: String::new(),
            holds: true,
        }
    }

    /// Creates a row that compares our figure with that of a smaller case; the ratio is the growth.
    pub(crate) fn grown(name: &str, unit: &'static str, ours: f64, smaller: (&str, f64)) -> Self {
        Self {
            ratio: (smaller.1 > 0.0).then_some(ours / smaller.1),
            ..Self::beside(name, unit, ours, smaller)
        }
    }

    /// Returns the row with a bar.
    pub(crate) fn bar(self, bar: &str, holds: bool) -> Self {
        Self { bar: bar.to_owned(), holds, ..self }
    }
}

/// Prints the rows as a table.
pub(crate) fn print(rows: &[Row]) {
    println!("{:<34} {:>13} {:>13} {:>8}  {:<28} bar", "", "ours", "peer", "ratio", "peer");
    for row in rows {
        let Row { name, unit, ours, peer, peer_name, ratio, bar, holds } = row;
        let verdict = match (bar.is_empty(), holds) {
            (true, _) => String::new(),
            (false, true) => format!("{bar}: holds"),
            (false, false) => format!("{bar}: MISSED"),
        };
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let [ours, peer] = [*ours, *peer].map(|value| figure(value, unit));
        println!("{name:<34} {ours:>13} {peer:>13} {ratio:>8}  {peer_name:<28} {verdict}");
    }
}

/// Formats a figure with two decimals, or with more if two would show zero.
fn figure(value: f64, unit: &str) -> String {
    match value {
        _ if value.is_nan() => "not measured".to_owned(),
        _ if value > 0.0 && value < 0.1 => format!("{value:.4} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}
